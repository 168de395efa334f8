# find_package(ashlar), and pkg-config for everyone else. Headers alone are the same for every architecture, so both go
# to share/.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/ashlar DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS ashlar EXPORT ashlar)
install(EXPORT ashlar NAMESPACE ashlar:: FILE ashlarTargets.cmake DESTINATION ${CMAKE_INSTALL_DATADIR}/cmake/ashlar)

configure_package_config_file(cmake/ashlarConfig.cmake.in ashlarConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_DATADIR}/cmake/ashlar)
write_basic_package_version_file(ashlarConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ashlarConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ashlarConfigVersion.cmake
              cmake/xsimd.cmake
        DESTINATION ${CMAKE_INSTALL_DATADIR}/cmake/ashlar)

configure_file(cmake/ashlar.pc.in ashlar.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ashlar.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)

# Builds for 64-bit Arm on another machine and runs the result under QEMU.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)

# Eigen, xsimd, Catch2, nlohmann-json, DLPack and Boost.Math are headers, so the machine's own packages serve. They must not bring
# /usr/include along, where the C library's headers are of the wrong architecture: CMake leaves out what the compiler
# searches anyway, and the compiler gets a folder of links to just these packages.
list(APPEND CMAKE_PREFIX_PATH /usr/lib/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu/cmake)
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${CMAKE_BINARY_DIR}/header_packages)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/header_packages)
foreach(package xsimd catch2 nlohmann dlpack boost)
  if(EXISTS /usr/include/${package})
    file(CREATE_LINK /usr/include/${package} ${CMAKE_BINARY_DIR}/header_packages/${package} SYMBOLIC)
  endif()
endforeach()
list(APPEND CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES /usr/include)

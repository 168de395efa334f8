# Some packages of xsimd link xtl, which only complex batches need and which may not be installed.
get_target_property(ashlar_xsimd_links xsimd INTERFACE_LINK_LIBRARIES)
if(ashlar_xsimd_links STREQUAL "xtl" AND NOT TARGET xtl)
  set_target_properties(xsimd PROPERTIES INTERFACE_LINK_LIBRARIES "")
endif()

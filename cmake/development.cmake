# How our own targets are compiled: warnings are errors, the library is an ordinary include, one instruction set.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)

add_library(ashlar_development INTERFACE)
target_link_libraries(ashlar_development INTERFACE ashlar::ashlar nlohmann_json::nlohmann_json dlpack::dlpack Boost::headers
                      lbfgspp)
set(cxx $<COMPILE_LANGUAGE:CXX>)
target_compile_options(ashlar_development INTERFACE
  "$<${cxx}:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow;-Werror>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;-Werror=all-warnings>")
# GCC 12 is wrong about its own headers: the undefined operand inside AVX-512 intrinsics, and joined strings at -O3.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(ashlar_development INTERFACE
    "$<${cxx}:-Wno-uninitialized;-Wno-maybe-uninitialized;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-restrict>")
endif()
if(ASHLAR_ARCH)
  target_compile_options(ashlar_development INTERFACE $<${cxx}:-march=${ASHLAR_ARCH}>)
endif()
if(ASHLAR_SANITIZE)
  target_compile_options(ashlar_development INTERFACE
    "$<${cxx}:-fsanitize=${ASHLAR_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
  target_link_options(ashlar_development INTERFACE -fsanitize=${ASHLAR_SANITIZE})
  if(ASHLAR_SANITIZE MATCHES "address,undefined")  # what the address sanitizer stops anyway, at a third of the build
    target_compile_options(ashlar_development INTERFACE "$<${cxx}:-fno-sanitize=null,object-size,vptr>")
  endif()
endif()

# nvcc compiles the .cuh forms wherever it is found.
if(ASHLAR_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80)
    endif()
    enable_language(CUDA)
    if(CMAKE_CUDA20_COMPILE_FEATURES)
      set(CMAKE_CUDA_STANDARD 20)
    else()  # older than its nvcc, CMake does not know the option
      string(APPEND CMAKE_CUDA_FLAGS " -std=c++20")
    endif()
  endif()
endif()

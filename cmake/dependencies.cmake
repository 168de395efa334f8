# What the library and its development targets stand on: the system's package where there is one, a pinned source
# otherwise.
include(FetchContent)

# Eigen 3.4 ... 5.x, xsimd 8.1 ... 14. Their version files refuse a newer major, so the floor is checked here.
find_package(Eigen3 CONFIG QUIET)
if(NOT TARGET Eigen3::Eigen)
  set(EIGEN_BUILD_TESTING OFF)
  set(EIGEN_BUILD_DOC OFF)
  FetchContent_Declare(Eigen3 GIT_REPOSITORY https://gitlab.com/libeigen/eigen.git GIT_TAG 3.4.0 GIT_SHALLOW ON SYSTEM)
  FetchContent_MakeAvailable(Eigen3)
elseif(Eigen3_VERSION VERSION_LESS 3.4)
  message(FATAL_ERROR "ashlar needs Eigen 3.4 or newer, found ${Eigen3_VERSION}")
endif()

find_package(xsimd CONFIG QUIET)
if(NOT TARGET xsimd)
  FetchContent_Declare(xsimd GIT_REPOSITORY https://github.com/xtensor-stack/xsimd.git GIT_TAG 8.1.0 GIT_SHALLOW ON
                       SYSTEM)
  FetchContent_MakeAvailable(xsimd)
elseif(xsimd_VERSION VERSION_LESS 8.1)
  message(FATAL_ERROR "ashlar needs xsimd 8.1 or newer, found ${xsimd_VERSION}")
endif()
include(${CMAKE_CURRENT_LIST_DIR}/xsimd.cmake)

if(ASHLAR_BUILD_TESTS)
  find_package(Catch2 CONFIG QUIET)
  if(NOT TARGET Catch2::Catch2)
    FetchContent_Declare(Catch2 GIT_REPOSITORY https://github.com/catchorg/Catch2.git GIT_TAG v3.7.1 GIT_SHALLOW ON
                         SYSTEM)
    FetchContent_MakeAvailable(Catch2)
    list(APPEND CMAKE_MODULE_PATH ${catch2_SOURCE_DIR}/extras)
  endif()
endif()

if(ASHLAR_BUILD_BENCHMARKS)
  find_package(benchmark CONFIG QUIET)
  if(NOT TARGET benchmark::benchmark)
    set(BENCHMARK_ENABLE_TESTING OFF)
    FetchContent_Declare(benchmark GIT_REPOSITORY https://github.com/google/benchmark.git GIT_TAG v1.9.0 GIT_SHALLOW ON
                         SYSTEM)
    FetchContent_MakeAvailable(benchmark)
  endif()
endif()

if(ASHLAR_BUILD_TESTS OR ASHLAR_BUILD_BENCHMARKS OR ASHLAR_BUILD_EXAMPLES OR ASHLAR_BUILD_FUZZERS)
  find_package(nlohmann_json CONFIG QUIET)
  if(NOT TARGET nlohmann_json::nlohmann_json)
    FetchContent_Declare(nlohmann_json GIT_REPOSITORY https://github.com/nlohmann/json.git GIT_TAG v3.11.3
                         GIT_SHALLOW ON SYSTEM)
    FetchContent_MakeAvailable(nlohmann_json)
  endif()

  find_package(dlpack CONFIG QUIET)
  if(NOT TARGET dlpack::dlpack)
    set(BUILD_MOCK OFF)
    FetchContent_Declare(dlpack GIT_REPOSITORY https://github.com/dmlc/dlpack.git GIT_TAG v0.8 GIT_SHALLOW ON SYSTEM)
    FetchContent_MakeAvailable(dlpack)
  endif()

  # Boost.Math alone, which is all headers.
  find_package(Boost 1.74 CONFIG QUIET)
  if(NOT TARGET Boost::headers)
    FetchContent_Declare(boost_math GIT_REPOSITORY https://github.com/boostorg/math.git GIT_TAG boost-1.84.0
                         GIT_SHALLOW ON SYSTEM)
    FetchContent_GetProperties(boost_math)
    if(NOT boost_math_POPULATED)
      FetchContent_Populate(boost_math)
    endif()
    add_library(Boost::headers INTERFACE IMPORTED)
    target_include_directories(Boost::headers SYSTEM INTERFACE ${boost_math_SOURCE_DIR}/include)
    target_compile_definitions(Boost::headers INTERFACE BOOST_MATH_STANDALONE)
  endif()

  # Two headers and a folder; distributions package them without a CMake file.
  find_path(LBFGSPP_INCLUDE_DIR LBFGSB.h)
  if(NOT LBFGSPP_INCLUDE_DIR)
    FetchContent_Declare(lbfgspp GIT_REPOSITORY https://github.com/yixuan/LBFGSpp.git GIT_TAG v0.1.0 GIT_SHALLOW ON)
    FetchContent_GetProperties(lbfgspp)
    if(NOT lbfgspp_POPULATED)
      FetchContent_Populate(lbfgspp)
    endif()
    set(LBFGSPP_INCLUDE_DIR ${lbfgspp_SOURCE_DIR}/include)
  endif()
  add_library(lbfgspp INTERFACE IMPORTED)
  target_include_directories(lbfgspp SYSTEM INTERFACE ${LBFGSPP_INCLUDE_DIR})
endif()

if(ASHLAR_BUILD_EXAMPLES)
  find_package(CLI11 CONFIG QUIET)
  if(NOT TARGET CLI11::CLI11)
    FetchContent_Declare(CLI11 GIT_REPOSITORY https://github.com/CLIUtils/CLI11.git GIT_TAG v2.4.2 GIT_SHALLOW ON SYSTEM)
    FetchContent_MakeAvailable(CLI11)
  endif()
endif()

# ${TARGET} must fail to build and say ${EXPECTED}; ${TARGET}.control must build.
function(build target status text)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} --target ${target}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(${status} ${result} PARENT_SCOPE)
  set(${text} "${output}" PARENT_SCOPE)
endfunction()

build(${TARGET}.control status output)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "The right call does not compile:\n${output}")
endif()
build(${TARGET} status output)
if(status EQUAL 0)
  message(FATAL_ERROR "The wrong call compiles.")
elseif(NOT output MATCHES "${EXPECTED}")
  message(FATAL_ERROR "The wrong call fails without the words '${EXPECTED}':\n${output}")
endif()

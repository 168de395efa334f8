# The checker checked: a sound little house passes every rule; each bad file, put in alone, is caught by its rule.
cmake_minimum_required(VERSION 3.25)

function(write path)
  list(JOIN ARGN "\n" text)
  file(WRITE ${TREE}/${path} "${text}\n")
endfunction()

function(build_sound_tree)
  file(REMOVE_RECURSE ${TREE})
  write(include/ashlar/core/view.hpp "namespace ashlar {")
  write(include/ashlar/core/detail/own.hpp "namespace ashlar::detail {")
  write(include/ashlar/linalg/solve.hpp "#include \"ashlar/core/view.hpp\"" "namespace ashlar::linalg {")
  write(include/ashlar/sets/pool.hpp "#include <vector>" "#include \"ashlar/linalg/solve.hpp\""
        "namespace ashlar::sets::detail {")
  write(include/ashlar/sets/pool.cuh "#include \"ashlar/sets/pool.hpp\"" "namespace ashlar::sets {")
  write(include/ashlar/graph/walk.hpp "#include \"ashlar/core/view.hpp\"" "namespace ashlar::graph {")
  write(include/ashlar/sets.hpp "#include \"ashlar/sets/pool.hpp\"")
  write(include/ashlar/graph.hpp "#include \"ashlar/graph/walk.hpp\"")
  write(include/ashlar/ashlar.hpp "#include \"ashlar/core/view.hpp\"" "#include \"ashlar/linalg/solve.hpp\""
        "#include \"ashlar/sets.hpp\"" "#include \"ashlar/graph.hpp\"")
  foreach(test core/view_test.cpp linalg/solve_test.cpp sets/pool_test.cpp sets/pool_test.cu graph/walk_test.cpp)
    write(tests/${test} "#include \"ashlar/sets/pool.cuh\"")
  endforeach()
endfunction()

function(check rule status output)
  execute_process(COMMAND ${CMAKE_COMMAND} -D ROOT=${TREE} -D RULE=${rule} -P ${CHECK}
                  RESULT_VARIABLE result ERROR_VARIABLE text OUTPUT_VARIABLE text)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")  # undo the wrapping of long lines
  set(${status} ${result} PARENT_SCOPE)
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

# caught(<rule> <words of the fault> <bad file> <its lines>...)
function(caught rule words path)
  build_sound_tree()
  write(${path} ${ARGN})
  check(${rule} status output)
  string(FIND "${output}" "${words}" at)
  if(status EQUAL 0 OR at EQUAL -1)
    message(SEND_ERROR "${rule} did not see the fault in ${path}.\nexpected: ${words}\nprinted: ${output}")
  endif()
endfunction()

build_sound_tree()
foreach(rule floors circles tests namespaces device_headers umbrellas)
  check(${rule} status output)
  if(NOT status EQUAL 0)
    message(SEND_ERROR "${rule} finds fault with a sound tree: ${output}")
  endif()
endforeach()

caught(floors "core/bad.hpp (floor 0) includes linalg/solve.hpp (floor 1)"
       include/ashlar/core/bad.hpp "#include \"ashlar/linalg/solve.hpp\"")
caught(floors "linalg/bad.hpp (floor 1) includes sets/pool.hpp (floor 4)"
       include/ashlar/linalg/bad.hpp "#  include \"ashlar/sets/pool.hpp\"  // why")
caught(floors "graph/bad.hpp includes sets/pool.hpp: a field never includes another field"
       include/ashlar/graph/bad.hpp "#include \"ashlar/sets/pool.hpp\"")
caught(floors "linalg/bad.hpp includes core/detail/own.hpp, which is private to core"
       include/ashlar/linalg/bad.hpp "#include \"ashlar/core/detail/own.hpp\"")
caught(floors "graph/bad.hpp includes graph/gone.hpp, which does not exist"
       include/ashlar/graph/bad.hpp "#include \"ashlar/graph/gone.hpp\"")
caught(floors "graph/bad.hpp includes sets.hpp, which is for users alone"
       include/ashlar/graph/bad.hpp "#include \"ashlar/sets.hpp\"")
caught(floors "graph/bad.hpp has #include \"walk.hpp\": our own headers are included as"
       include/ashlar/graph/bad.hpp "#include \"walk.hpp\"")
caught(floors "graph/bad.hpp has #include <ashlar/graph/walk.hpp>: our own headers are included as"
       include/ashlar/graph/bad.hpp "#include <ashlar/graph/walk.hpp>")
caught(circles "on or above a circle of includes: core/view.hpp"
       include/ashlar/core/view.hpp "#include \"ashlar/graph/walk.hpp\"" "namespace ashlar {")
caught(tests "graph/bad.hpp has no tests/graph/bad_test.cpp" include/ashlar/graph/bad.hpp "namespace ashlar::graph {")
caught(tests "graph/bad.cuh has no tests/graph/bad_test.cu" include/ashlar/graph/bad.cuh "namespace ashlar::graph {")
caught(namespaces "graph/bad.hpp opens the namespace ashlar::sets"
       include/ashlar/graph/bad.hpp "namespace ashlar::graph {" "}" "namespace ashlar::sets {")
caught(namespaces "graph/bad.hpp does not open the namespace ashlar::graph"
       include/ashlar/graph/bad.hpp "namespace ashlar {")
caught(device_headers "which only .cu and .cuh files can compile"
       include/ashlar/graph/bad.hpp "#include \"ashlar/sets/pool.cuh\"")
caught(device_headers "which only .cu and .cuh files can compile"
       examples/sets/bad.cpp "#include \"ashlar/sets/pool.cuh\"")
caught(umbrellas "graph.hpp does not include graph/new.hpp" include/ashlar/graph/new.hpp "namespace ashlar::graph {")
caught(umbrellas "ashlar.hpp does not include core/new.hpp" include/ashlar/core/new.hpp "namespace ashlar {")
caught(umbrellas "ashlar.hpp does not include trees.hpp" include/ashlar/trees/new.hpp "namespace ashlar::trees {")
caught(umbrellas "trees.hpp is missing" include/ashlar/trees/new.hpp "namespace ashlar::trees {")
caught(umbrellas "graph.hpp includes sets/pool.hpp, which is not its own"
       include/ashlar/graph.hpp "#include \"ashlar/graph/walk.hpp\"" "#include \"ashlar/sets/pool.hpp\"")

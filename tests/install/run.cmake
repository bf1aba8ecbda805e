# A user of the installed package, in steps. `prefix` installs BUILD into a fresh folder and moves that elsewhere, since
# packages are moved; the others take it from there with COMPILER: `find_package` builds and runs a project,
# `pkg_config` programs by the flags that pkg-config tells.
cmake_minimum_required(VERSION 3.25)
set(work ${BUILD}/install_test)
set(prefix ${work}/moved)
macro(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endmacro()

if(STEP STREQUAL "prefix")
  file(REMOVE_RECURSE ${work})
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
  file(RENAME ${work}/prefix ${prefix})
  if(PROGRAMS)
    run(${prefix}/bin/windrow train --help)
    foreach(file bash-completion/completions/windrow zsh/site-functions/_windrow fish/vendor_completions.d/windrow.fish
                 man/man1/windrow.1)
      file(GLOB_RECURSE found ${prefix}/*/${file})
      if(NOT found)
        message(FATAL_ERROR "${file} was not installed")
      endif()
    endforeach()
  endif()
  return()
endif()

get_filename_component(name ${COMPILER} NAME)
set(build ${work}/${STEP}.${name})
if(STEP STREQUAL "find_package")
  run(${CMAKE_COMMAND} -S ${SOURCE}/tests/install -B ${build} -G Ninja -DCMAKE_PREFIX_PATH=${prefix}
      -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=Release -DEXAMPLES=${SOURCE}/examples)
  run(${CMAKE_COMMAND} --build ${build} -- -j 1) # other tests run beside it
  # An unknown component is named.
  file(WRITE ${build}.unknown/CMakeLists.txt
       "cmake_minimum_required(VERSION 3.25)\nproject(user CXX)\nfind_package(windrow REQUIRED COMPONENTS engine batchng)\n")
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${build}.unknown -B ${build}.unknown/build -G Ninja -DCMAKE_PREFIX_PATH=${prefix}
            -DCMAKE_CXX_COMPILER=${COMPILER}
    RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE errors)
  string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
  if(result EQUAL 0 OR NOT errors MATCHES "component 'batchng' is unknown; expected some of engine, memory,")
    message(FATAL_ERROR "an unknown component: ${result} ${errors}")
  endif()
elseif(STEP STREQUAL "pkg_config")
  find_program(pkg_config pkg-config REQUIRED)
  file(GLOB_RECURSE described ${prefix}/windrow-engine.pc)
  get_filename_component(folder ${described} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} ${folder})
  file(MAKE_DIRECTORY ${build})
  foreach(user engine:engine ops:own_operator cuda:device models:tree_lstm)
    string(REPLACE : ";" user ${user})
    list(GET user 0 room)
    list(GET user 1 example)
    run(${pkg_config} --cflags --libs windrow-${room})
    separate_arguments(flags UNIX_COMMAND "${output}")
    run(${COMPILER} -std=c++20 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror ${SOURCE}/examples/${example}.cc
        ${flags} -o ${build}/user_of_${room})
  endforeach()
endif()
foreach(room engine ops cuda models)
  run(${build}/user_of_${room})
endforeach()

# Installs the build BUILD into a fresh prefix, builds the user's project against it, runs it.
set(work ${BUILD}/install_test)
file(REMOVE_RECURSE ${work})
macro(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endmacro()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/install -B ${work}/build -G Ninja -DCMAKE_PREFIX_PATH=${work}/prefix
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS} -DEXAMPLE=${SOURCE}/examples/engine.cc)
run(${CMAKE_COMMAND} --build ${work}/build)
run(${work}/build/user)

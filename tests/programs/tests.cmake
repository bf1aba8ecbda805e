# The programs as a user meets them, and the libraries of which they are made.
if(NOT WINDROW_PROGRAMS)
  return()
endif()
# How a C++ program is compiled with the room ops of this build.
set(ops_flags)
foreach(room ops memory engine)
  string(APPEND ops_flags " -I${PROJECT_SOURCE_DIR}/${room}/include $<TARGET_FILE:windrow_${room}>")
endforeach()
windrow_test(
  programs_test
  SOURCES programs/benchmarks_test.cc programs/commands_test.cc programs/data_test.cc programs/devices_test.cc
          programs/export_test.cc programs/kill_test.cc programs/members_test.cc programs/predict_test.cc
          programs/programs_test.cc programs/runs_test.cc programs/scores_test.cc programs/training_test.cc
  LINKS windrow::models
  DEFINITIONS WINDROW_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" WINDROW_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
              WINDROW_COMPILER="${CMAKE_CXX_COMPILER}"
              WINDROW_OPS_FLAGS="${ops_flags} -ldnnl -lgomp -lhwy -ltbb -pthread"
              ${fake_plugin} ${fake_nccl_plugin} WINDROW_MPIRUN="${MPIEXEC_EXECUTABLE}"
              $<$<TARGET_EXISTS:windrow_mpi_plugin>:WINDROW_WITH_MPI>
              $<$<TARGET_EXISTS:windrow_test_profiler>:WINDROW_TEST_PROFILER="$<TARGET_FILE:windrow_test_profiler>">)
add_dependencies(programs_test windrow windrow-perf windrow_no_work)
foreach(plug_in windrow_mpi_plugin windrow_fake_cuda_plugin windrow_fake_nccl_plugin windrow_test_profiler)
  if(TARGET ${plug_in})
    add_dependencies(programs_test ${plug_in})
  endif()
endforeach()
windrow_test(
  program_test
  SOURCES programs/report_test.cc
  LINKS windrow_program)
windrow_test(perf_test SOURCES programs/perf_test.cc batching/oracle.cc LINKS windrow_perf)

add_test(NAME training.kill_soak COMMAND programs_test --gtest_filter=KilledPrograms.*)
set_tests_properties(training.kill_soak PROPERTIES LABELS soak TIMEOUT 600 ENVIRONMENT "WINDROW_TEST_KILLS=200")
add_test(NAME comm.kill_soak COMMAND programs_test --gtest_filter=KilledMembers.*:*KilledGroups.*)
set_tests_properties(comm.kill_soak PROPERTIES LABELS soak TIMEOUT 1800 ENVIRONMENT "WINDROW_TEST_KILLS=100")
if(TARGET windrow_mpi_plugin AND NOT WINDROW_SANITIZE)
  # Processes on two hosts, which are network namespaces of this machine. Needs root.
  find_package(Python3 REQUIRED)
  add_test(NAME comm.network COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/comm/network_test.py
                                     --mpirun ${MPIEXEC_EXECUTABLE} --windrow $<TARGET_FILE:windrow>)
  set_tests_properties(comm.network PROPERTIES LABELS net SKIP_RETURN_CODE 77 TIMEOUT 600)
endif()

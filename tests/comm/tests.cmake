windrow_test(
  comm_test
  SOURCES comm/contract.cc comm/local_test.cc comm/nested_test.cc devices/simulated.cc
  LINKS windrow::comm
  INSIDE comm)

# The fake of MPI, with ranks as threads: runs everywhere, also under sanitizers.
add_library(windrow_fake_mpi SHARED comm/fake_mpi.cc)
target_include_directories(
  windrow_fake_mpi PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/comm
                           $<TARGET_PROPERTY:windrow_comm,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_libraries(windrow_fake_mpi PRIVATE windrow_flags)
windrow_test(
  fake_mpi_test
  SOURCES comm/contract.cc comm/fake_mpi_test.cc
  LINKS windrow::comm windrow_fake_mpi
  DEFINITIONS WINDROW_FAKE_MPI="$<TARGET_FILE:windrow_fake_mpi>")
add_test(NAME fake_mpi_soak COMMAND fake_mpi_test --gtest_filter=*Fault* --gtest_repeat=5)
set_tests_properties(fake_mpi_soak PROPERTIES LABELS soak TIMEOUT 600 ENVIRONMENT WINDROW_TEST_FAULTS=1000)

# Tests of processes, where there is an MPI library. Not under sanitizers, which do not know what that does.
if(NOT TARGET windrow_mpi_plugin OR WINDROW_SANITIZE)
  return()
endif()
add_executable(mpi_test comm/contract.cc comm/mpi_test.cc devices/simulated.cc)
windrow_test_program(mpi_test windrow::comm GTest::gtest_main)
add_executable(mpi_rank comm/mpi_rank.cc)
windrow_test_program(mpi_rank windrow::comm GTest::gtest)
add_executable(mpi_failure_test comm/mpi_failure_test.cc)
windrow_test_program(mpi_failure_test GTest::gtest_main)
target_compile_definitions(
  mpi_failure_test PRIVATE WINDROW_MPIRUN="${MPIEXEC_EXECUTABLE}" WINDROW_MPI_RANK="$<TARGET_FILE:mpi_rank>")
# Containers may forbid processes to read each other's memory, which Open MPI takes for a failure.
set(environment WINDROW_MPI_PLUGIN=$<TARGET_FILE:windrow_mpi_plugin> OMPI_MCA_btl_vader_single_copy_mechanism=none)
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI COMPONENTS CXX)
add_executable(mpi_joined_test comm/mpi_joined_test.cc)
windrow_test_program(mpi_joined_test windrow::comm GTest::gtest MPI::MPI_CXX)
foreach(program mpi_test mpi_joined_test mpi_rank)
  add_dependencies(${program} windrow_mpi_plugin)
endforeach()
foreach(processes 1 2 4)
  add_test(NAME mpi_test.${processes}
           COMMAND ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe ${MPIEXEC_NUMPROC_FLAG} ${processes}
                   $<TARGET_FILE:mpi_test>)
  set_tests_properties(mpi_test.${processes} PROPERTIES TIMEOUT 300 ENVIRONMENT "${environment}")
endforeach()
add_test(NAME mpi_joined_test
         COMMAND ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe ${MPIEXEC_NUMPROC_FLAG} 3
                 $<TARGET_FILE:mpi_joined_test>)
set_tests_properties(mpi_joined_test PROPERTIES TIMEOUT 120 ENVIRONMENT "${environment}" SKIP_RETURN_CODE 77)
add_test(NAME mpi_failure_test COMMAND mpi_failure_test)
set_tests_properties(mpi_failure_test PROPERTIES TIMEOUT 400 ENVIRONMENT "${environment}")

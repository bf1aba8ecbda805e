# Tests of groups by NCCL, where nccl.h is: the plug-in's own object, linked with cuda/fake/ in place of NCCL and CUDA.
if(NOT TARGET windrow_nccl_objects OR NOT TARGET windrow_fake_cuda)
  return()
endif()
add_library(windrow_fake_nccl_plugin MODULE $<TARGET_OBJECTS:windrow_nccl_objects>)
set_target_properties(windrow_fake_nccl_plugin PROPERTIES PREFIX "" LINKER_LANGUAGE CXX)
target_link_libraries(windrow_fake_nccl_plugin PRIVATE windrow_fake_cuda)
if(WINDROW_SANITIZE)
  target_link_options(windrow_fake_nccl_plugin PRIVATE -fsanitize=${WINDROW_SANITIZE})
endif()
set(fake_nccl_plugin WINDROW_FAKE_NCCL="$<TARGET_FILE:windrow_fake_nccl_plugin>")
windrow_test(
  fake_nccl_test
  SOURCES comm/nccl_test.cc comm/nccl_failures_test.cc comm/random_collectives.cc
  LINKS windrow::comm windrow::cuda windrow_fake_cuda
  DEFINITIONS ${fake_plugin} ${fake_nccl_plugin})
set_target_properties(fake_nccl_test PROPERTIES LINKER_LANGUAGE CXX)
add_dependencies(fake_nccl_test windrow_fake_cuda_plugin windrow_fake_nccl_plugin)
foreach(number RANGE 1 8)
  set_tests_properties(fake_nccl_test.${number}_of_8 PROPERTIES LABELS fake-cuda)
endforeach()

# The same with processes, where there is an MPI library. Not under sanitizers, which do not know what that does.
if(NOT TARGET windrow_mpi_plugin OR WINDROW_SANITIZE)
  return()
endif()
add_executable(nccl_processes_test comm/nccl_processes_test.cc comm/random_collectives.cc)
windrow_test_program(nccl_processes_test windrow::comm windrow::cuda windrow_fake_cuda GTest::gtest_main)
target_compile_definitions(nccl_processes_test PRIVATE ${fake_plugin} ${fake_nccl_plugin})
set_target_properties(nccl_processes_test PROPERTIES LINKER_LANGUAGE CXX)
add_dependencies(nccl_processes_test windrow_fake_cuda_plugin windrow_fake_nccl_plugin windrow_mpi_plugin)
foreach(processes 2 3)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/fake-nccl-${processes})
  file(MAKE_DIRECTORY ${folder})
  add_test(NAME nccl_processes_test.${processes}
           COMMAND ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe ${MPIEXEC_NUMPROC_FLAG} ${processes}
                   $<TARGET_FILE:nccl_processes_test>)
  set_tests_properties(
    nccl_processes_test.${processes}
    PROPERTIES LABELS fake-cuda TIMEOUT 300
               ENVIRONMENT "WINDROW_MPI_PLUGIN=$<TARGET_FILE:windrow_mpi_plugin>;OMPI_MCA_btl_vader_single_copy_mechanism=none;WINDROW_FAKE_NCCL_FOLDER=${folder}")
endforeach()

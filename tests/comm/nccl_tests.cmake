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
  SOURCES comm/contract.cc comm/nccl_test.cc
  LINKS windrow::comm windrow::cuda windrow_fake_cuda
  DEFINITIONS ${fake_plugin} ${fake_nccl_plugin})
set_target_properties(fake_nccl_test PROPERTIES LINKER_LANGUAGE CXX)
add_dependencies(fake_nccl_test windrow_fake_cuda_plugin windrow_fake_nccl_plugin)
foreach(number RANGE 1 8)
  set_tests_properties(fake_nccl_test.${number}_of_8 PROPERTIES LABELS fake-cuda)
endforeach()

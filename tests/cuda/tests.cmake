# The tests of CUDA devices. Start here; then cuda/fake/fake.h.
#
# They run everywhere where nvcc is, on a runtime without a GPU: the plug-in's own objects are linked with cuda/fake/ in place
# of the CUDA libraries.
if(NOT TARGET windrow_cuda_objects)
  return()
endif()

add_library(
  windrow_fake_cuda SHARED
  cuda/fake/blas.cc cuda/fake/checker.cc cuda/fake/compiler.cc cuda/fake/graph_calls.cc cuda/fake/launch_calls.cc cuda/fake/memory.cc cuda/fake/memory_calls.cc
  cuda/fake/runtime.cc cuda/fake/stream_calls.cc cuda/fake/streams.cc cuda/fake/teams.cc)
target_include_directories(
  windrow_fake_cuda PRIVATE ${PROJECT_SOURCE_DIR} $<TARGET_PROPERTY:windrow_ops,INTERFACE_INCLUDE_DIRECTORIES>)
target_include_directories(windrow_fake_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(windrow_fake_cuda PRIVATE windrow_flags Threads::Threads ${CMAKE_DL_LIBS})
if(TARGET windrow_nccl_objects)
  target_sources(windrow_fake_cuda PRIVATE cuda/fake/nccl.cc cuda/fake/nccl_work.cc)
  target_include_directories(windrow_fake_cuda SYSTEM PRIVATE ${WINDROW_NCCL_INCLUDE})
endif()
# ThreadSanitizer looks at the teams of kernels that run at the same time. Other sanitizers see nothing in these kernels,
# whose memory is mapped as a whole.
set(host_compiler ${CMAKE_CXX_COMPILER})
if(WINDROW_SANITIZE STREQUAL "thread")
  string(APPEND host_compiler " -fsanitize=thread")
endif()
target_compile_definitions(windrow_fake_cuda PRIVATE WINDROW_HOST_COMPILER="${host_compiler}")

add_library(windrow_fake_cuda_plugin MODULE $<TARGET_OBJECTS:windrow_cuda_objects>)
set_target_properties(windrow_fake_cuda_plugin PROPERTIES PREFIX "" OUTPUT_NAME windrow_fake_cuda_plugin LINKER_LANGUAGE CXX)
target_link_libraries(windrow_fake_cuda_plugin PRIVATE windrow_fake_cuda)
if(WINDROW_SANITIZE)
  target_link_options(windrow_fake_cuda_plugin PRIVATE -fsanitize=${WINDROW_SANITIZE})
endif()

# A profiler for the tests, where the toolkit has the headers of NVTX.
set(nvtx_headers ${CUDAToolkit_INCLUDE_DIRS})
list(TRANSFORM nvtx_headers APPEND /nvtx3/nvToolsExt.h)
foreach(header ${nvtx_headers})
  if(EXISTS ${header} AND NOT TARGET windrow_test_profiler)
    add_library(windrow_test_profiler MODULE cuda/nvtx.cc)
    target_include_directories(windrow_test_profiler SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    target_link_libraries(windrow_test_profiler PRIVATE windrow_flags)
  endif()
endforeach()

# Presets share the kernels that the compiler of the host makes.
set(fake_cache ${PROJECT_BINARY_DIR}/fake-cuda-kernels)
if(PROJECT_BINARY_DIR MATCHES "^${PROJECT_SOURCE_DIR}/build/[^/]+$" AND NOT WINDROW_SANITIZE STREQUAL "thread")
  set(fake_cache ${PROJECT_SOURCE_DIR}/build/fake-cuda-kernels)
endif()
set(fake_plugin WINDROW_FAKE_PLUGIN="$<TARGET_FILE:windrow_fake_cuda_plugin>" WINDROW_FAKE_CACHE="${fake_cache}")

# The kernels of the tests.
add_library(windrow_cuda_test_kernels OBJECT cuda/kernels.cu)
set_target_properties(windrow_cuda_test_kernels PROPERTIES CUDA_RUNTIME_LIBRARY None)
target_include_directories(windrow_cuda_test_kernels
                           PRIVATE ${PROJECT_SOURCE_DIR} $<TARGET_PROPERTY:windrow_ops,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_libraries(windrow_cuda_test_kernels PRIVATE windrow_cuda_flags)

windrow_test(
  fake_cuda_test
  SOURCES cuda/batching_test.cc cuda/code_test.cc cuda/cuda_device_test.cc cuda/fake_test.cc
          cuda/lanes_test.cc cuda/levels_test.cc cuda/minibatch_test.cc cuda/streams_test.cc $<TARGET_OBJECTS:windrow_conformance>
  LINKS windrow::models windrow::cuda windrow_fake_cuda
  INSIDE cuda
  DEFINITIONS ${fake_plugin})
target_sources(fake_cuda_test PRIVATE $<TARGET_OBJECTS:windrow_cuda_test_kernels>)
target_include_directories(fake_cuda_test PRIVATE ${PROJECT_SOURCE_DIR}/cuda)
target_include_directories(fake_cuda_test SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
set_target_properties(fake_cuda_test PROPERTIES LINKER_LANGUAGE CXX)
add_dependencies(fake_cuda_test windrow_fake_cuda_plugin)
foreach(number RANGE 1 8)
  set_tests_properties(fake_cuda_test.${number}_of_8 PROPERTIES LABELS fake-cuda)
endforeach()

# Allocations of the host fail one after the other.
windrow_test(
  cuda_fault_test
  SOURCES cuda/cuda_fault_test.cc engine/faults.cc
  LINKS windrow::batching windrow::cuda windrow_fake_cuda ${CMAKE_DL_LIBS}
  DEFINITIONS ${fake_plugin} WINDROW_FAULT_STRIDES=${fault_strides})
add_dependencies(cuda_fault_test windrow_fake_cuda_plugin)
foreach(number RANGE 1 8)
  set_tests_properties(cuda_fault_test.${number}_of_8 PROPERTIES LABELS fake-cuda)
endforeach()

# The random programs of CudaPrograms, many more.
add_test(NAME fake_cuda.soak COMMAND fake_cuda_test --gtest_filter=*GiveTheResultOfTheSerialOnes*)
set_tests_properties(fake_cuda.soak PROPERTIES LABELS soak TIMEOUT 7200 ENVIRONMENT "WINDROW_TEST_PROGRAMS=8400")

# Sanitizers have nothing to see in the code of devices.
if(NOT WINDROW_SANITIZE)
  # The same suite on a real device: ctest -L '^cuda$'.
  add_executable(cuda_test cuda/real_test.cc $<TARGET_OBJECTS:windrow_conformance>)
  windrow_test_program(cuda_test windrow::models windrow::cuda GTest::gtest CUDA::cudart_static)
  target_sources(cuda_test PRIVATE $<TARGET_OBJECTS:windrow_cuda_test_kernels>)
  add_dependencies(cuda_test windrow_cuda_plugin)
  add_test(NAME cuda.conformance COMMAND cuda_test)
  set_tests_properties(cuda.conformance PROPERTIES LABELS cuda SKIP_RETURN_CODE 77 TIMEOUT 900)

  windrow_test(
    nvrtc_test
    SOURCES cuda/nvrtc_test.cc
    LINKS windrow::models windrow::cuda ${CMAKE_DL_LIBS}
    INSIDE cuda
    DEFINITIONS WINDROW_PLUGIN="$<TARGET_FILE:windrow_cuda_plugin>")
  target_include_directories(nvrtc_test PRIVATE ${PROJECT_SOURCE_DIR}/cuda)
  target_include_directories(nvrtc_test SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  add_dependencies(nvrtc_test windrow_cuda_plugin)

  find_package(Python3 REQUIRED)
  add_test(NAME cuda.architectures COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cuda/architectures.py
                                           $<TARGET_FILE:windrow_cuda_plugin> 80 90)
  add_test(NAME cuda.architectures_notice_a_missing_one
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/cuda/architectures.py
                   $<TARGET_FILE:windrow_cuda_plugin> 80 75)
  set_tests_properties(cuda.architectures_notice_a_missing_one PROPERTIES WILL_FAIL ON)
endif()
include(comm/nccl_tests.cmake)

windrow_test(
  ops_test
  SOURCES ops/apply_test.cc ops/cases.cc ops/cut_test.cc ops/model_cases.cc ops/placed_test.cc ops/random_test.cc ops/source_test.cc
          ops/static_block_test.cc ops/static_misuse_test.cc ops/static_test.cc ops/tape_test.cc
          ops/typed_test.cc
  WITHOUT_ENGINE ops/host_kernels_test.cc ops/long_sums_test.cc ops/not_finite_test.cc ops/operators_test.cc
                 ops/scalar_test.cc ops/shapes_test.cc
  LINKS windrow::ops ${CMAKE_DL_LIBS}
  INSIDE ops
  DEFINITIONS WINDROW_COMPILER="${CMAKE_CXX_COMPILER}")
if(NOT WINDROW_SANITIZE STREQUAL "thread") # failures of allocations in code that one thread runs
  windrow_test(
    ops_fault_test
    SOURCES ops/static_cost_test.cc engine/faults.cc
    LINKS windrow::ops ${CMAKE_DL_LIBS})
endif()

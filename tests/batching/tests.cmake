windrow_test(
  batching_test
  SOURCES batching/descent_test.cc batching/dropout_test.cc batching/failure_test.cc batching/kinds_test.cc
          batching/large_gradient_test.cc batching/layers_test.cc batching/lazy_cell_test.cc
          batching/lazy_failure_test.cc batching/lazy_lists_test.cc batching/lazy_memory_test.cc
          batching/lazy_misuse_test.cc batching/lazy_task_test.cc batching/lazy_test.cc batching/lifetime_test.cc
          batching/lists_test.cc
          batching/optimisations_test.cc batching/oracle.cc batching/oracle_test.cc batching/outside_test.cc
          batching/parameters_test.cc batching/prepare_test.cc batching/runner_test.cc batching/vertex_function_test.cc
  WITHOUT_ENGINE batching/graph_test.cc batching/schedule_test.cc
  LINKS windrow::models
  INSIDE batching
  DEFINITIONS WINDROW_COMPILER="${CMAKE_CXX_COMPILER}"
              WINDROW_ROOMS="${PROJECT_SOURCE_DIR}")
if(NOT WINDROW_SANITIZE STREQUAL "thread") # failures of allocations in code that one thread runs
  windrow_test(
    batching_fault_test
    SOURCES batching/fault_test.cc engine/faults.cc
    LINKS windrow::batching ${CMAKE_DL_LIBS})
endif()

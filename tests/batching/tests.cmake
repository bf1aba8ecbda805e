windrow_test(
  batching_test
  SOURCES batching/attention_test.cc batching/cell_lists_test.cc batching/children_test.cc batching/descent_test.cc
          batching/dropout_test.cc batching/early_gradient_test.cc batching/edges_test.cc
          batching/encoder_decoder_test.cc batching/failure_test.cc batching/frozen_test.cc batching/forgetting_test.cc
          batching/image_sequence_test.cc batching/initial_test.cc batching/kinds_test.cc
          batching/large_gradient_test.cc batching/layers_test.cc batching/layout_memory_test.cc
          batching/lazy_cell_test.cc batching/lazy_change_test.cc batching/lazy_depth_test.cc
          batching/lazy_failure_test.cc batching/lazy_lessons_test.cc
          batching/lazy_lists_test.cc batching/lazy_memory_test.cc batching/lazy_misuse_test.cc
          batching/lazy_program_test.cc batching/lazy_runs_test.cc batching/lazy_task_test.cc batching/lazy_test.cc
          batching/lifetime_test.cc batching/max_children_test.cc batching/minibatch_memory_test.cc
          batching/optimisations_test.cc batching/oracle.cc batching/oracle_test.cc batching/outside_test.cc
          batching/own_gradients_test.cc batching/many_types_test.cc batching/qualified_call_test.cc
          batching/runner_test.cc batching/static_head_test.cc batching/structure_key_test.cc
          batching/tables_test.cc batching/vertex_function_test.cc
  WITHOUT_ENGINE batching/graph_test.cc batching/pieces_test.cc batching/schedule_test.cc
  LINKS windrow::models
  INSIDE batching
  DEFINITIONS WINDROW_COMPILER="${CMAKE_CXX_COMPILER}"
              WINDROW_ROOMS="${PROJECT_SOURCE_DIR}")
if(NOT WINDROW_SANITIZE STREQUAL "thread") # failures of allocations in code that one thread runs
  windrow_test(
    batching_fault_test
    SOURCES batching/costs_test.cc batching/lazy_fault_test.cc engine/faults.cc
    LINKS windrow::batching ${CMAKE_DL_LIBS})
endif()

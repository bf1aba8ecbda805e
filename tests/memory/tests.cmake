windrow_test(
  memory_test
  SOURCES memory/buffer_test.cc memory/graph_buffer_test.cc memory/out_of_memory_test.cc memory/pool_test.cc
  WITHOUT_ENGINE memory/planner_test.cc
  LINKS windrow::memory)

# The tests of the engine. Start with engine/support.h and policy_test.cc, then the oracle: random_program.h.
find_package(nlohmann_json REQUIRED)
windrow_test(
  engine_test
  SOURCES engine/access_check_test.cc engine/bytes_test.cc engine/commute_test.cc engine/continuation_test.cc
          engine/deadline_test.cc engine/engine_test.cc engine/error_test.cc
          engine/graph_life_test.cc engine/graph_test.cc engine/lane_issue_test.cc engine/lane_test.cc
          engine/lifecycle_test.cc engine/options_test.cc engine/oracle_test.cc engine/parallel_test.cc
          engine/parts_test.cc engine/policy_test.cc engine/progress_test.cc engine/trace_summary_test.cc
          engine/trace_test.cc engine/wait_rings_test.cc engine/wait_test.cc engine/watchdog_test.cc
  LINKS windrow::engine nlohmann_json::nlohmann_json
  INSIDE engine
  DEFINITIONS WINDROW_ORACLE_OPS=${oracle_ops})
add_test(NAME engine.refuses_throwing_destructors
         COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -I${PROJECT_SOURCE_DIR}/engine/include
                 ${CMAKE_CURRENT_SOURCE_DIR}/engine/throwing_destructor.cc)
set_tests_properties(engine.refuses_throwing_destructors PROPERTIES PASS_REGULAR_EXPRESSION
                                                                    "has a destructor that may throw")
windrow_test(
  fault_test
  SOURCES engine/fault_feature_test.cc engine/fault_test.cc engine/faults.cc
  LINKS windrow::engine ${CMAKE_DL_LIBS}
  DEFINITIONS WINDROW_FAULT_STRIDES=${fault_strides})
add_test(NAME fault_soak COMMAND fault_test)
set_tests_properties(fault_soak PROPERTIES LABELS soak TIMEOUT 3600 ENVIRONMENT WINDROW_FAULT_STRIDES=1000000)
windrow_test(fork_test SOURCES engine/fork_test.cc engine/fork_pending_test.cc LINKS windrow::engine)

# The oracle, ten million ops.
add_test(NAME engine.soak COMMAND engine_test --gtest_filter=OracleOfRandomShapes.*)
set_tests_properties(engine.soak PROPERTIES LABELS soak TIMEOUT 7200 ENVIRONMENT WINDROW_TEST_OPS=1e7)

# Relacy switches threads by hand, which sanitizers do not follow.
if(NOT WINDROW_SANITIZE)
  find_path(RELACY_INCLUDE relacy/relacy.hpp REQUIRED)
  add_executable(interleavings engine/interleavings.cc)
  target_include_directories(
    interleavings PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/engine/include ${PROJECT_SOURCE_DIR}/engine/src)
  target_include_directories(interleavings SYSTEM PRIVATE ${RELACY_INCLUDE})
  target_compile_options(interleavings PRIVATE -O1 -w)  # compiles in half the time
  add_test(NAME interleavings.hold COMMAND interleavings)
  # Begins first, since it takes longest.
  set_tests_properties(interleavings.hold PROPERTIES COST 1000 TIMEOUT 900)
  add_test(NAME interleavings.hold_long COMMAND interleavings --longest)
  set_tests_properties(interleavings.hold_long PROPERTIES LABELS soak TIMEOUT 7200)
  add_test(NAME interleavings.without_acquire_are_caught COMMAND interleavings --broken acquire)
  add_test(NAME interleavings.in_opposite_orders_are_caught COMMAND interleavings --broken order)
  add_test(NAME interleavings.with_early_release_are_caught COMMAND interleavings --broken early)
endif()

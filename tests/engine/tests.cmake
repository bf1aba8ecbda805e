# The tests of the engine. Start with engine/support.h and policy_test.cc, then the oracle: random_program.h.
find_package(nlohmann_json REQUIRED)
windrow_test(
  engine_test
  SOURCES engine/access_check_test.cc engine/bytes_test.cc engine/commute_test.cc engine/continuation_test.cc
          engine/deadline_test.cc engine/engine_test.cc engine/error_test.cc
          engine/graph_life_test.cc engine/graph_test.cc engine/lane_issue_test.cc engine/lane_test.cc
          engine/lifecycle_test.cc engine/options_test.cc engine/oracle_test.cc engine/parallel_test.cc
          engine/parts_test.cc engine/policy_test.cc engine/progress_test.cc engine/trace_summary_test.cc
          engine/trace_test.cc engine/typed_push_test.cc engine/value_test.cc engine/wait_rings_test.cc
          engine/wait_test.cc engine/watchdog_test.cc
  LINKS windrow::engine nlohmann_json::nlohmann_json
  INSIDE engine
  DEFINITIONS WINDROW_ORACLE_OPS=${oracle_ops})
# Programs that must not compile, with what the compiler says.
function(windrow_refuses name source definition message)
  add_test(NAME engine.refuses_${name}
           COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -I${PROJECT_SOURCE_DIR}/engine/include ${definition}
                   ${CMAKE_CURRENT_SOURCE_DIR}/engine/${source})
  set_tests_properties(engine.refuses_${name} PROPERTIES PASS_REGULAR_EXPRESSION ${message})
endfunction()
windrow_refuses(throwing_destructors throwing_destructor.cc "" "has a destructor that may throw")
windrow_refuses(forgotten_accesses must_not_compile.cc -DCASE=1 "has more parameters than the op has accesses")
windrow_refuses(unused_accesses must_not_compile.cc -DCASE=2 "has fewer parameters than the op has accesses")
windrow_refuses(changes_of_what_is_read must_not_compile.cc -DCASE=3 "its access is a read, which gives const T&")
windrow_refuses(changes_of_copies must_not_compile.cc -DCASE=4 "is a copy, so changes would be lost")
windrow_refuses(another_order must_not_compile.cc -DCASE=5 "accesses are passed in the order of the list")
windrow_refuses(generic_functions must_not_compile.cc -DCASE=6 "assignment of read-only|cannot assign to variable")
windrow_refuses(changes_of_ranges_that_are_read must_not_compile.cc -DCASE=7 "does not take what its access gives")
windrow_refuses(changes_of_constants must_not_compile.cc -DCASE=8 "a const Value may only be read")
windrow_refuses(runs_without_result must_not_compile.cc -DCASE=9 "the function of run\\(\\) returns nothing")
windrow_refuses(results_that_no_value_stores must_not_compile.cc -DCASE=10 "expected a type with a default constructor")
windrow_refuses(declared_ops must_not_compile.cc -DCASE=11 "has more parameters than the op has accesses")
windrow_refuses(reductions must_not_compile.cc -DCASE=12 "its access is a read, which gives const T&")
windrow_refuses(changes_of_ranges_of_constants must_not_compile.cc -DCASE=13 "of const Values may only be read")
windrow_refuses(generic_functions_of_more must_not_compile.cc -DCASE=15 "a generic lambda with more parameters")
windrow_refuses(numbers_that_do_not_fit must_not_compile.cc -DCASE=16 "cannot hold every number of the value's type")
windrow_refuses(signs_that_do_not_fit must_not_compile.cc -DCASE=19 "cannot hold every number of the value's type")
windrow_refuses(changes_of_numbers_made_of_it must_not_compile.cc -DCASE=20 "is a copy, so changes would be lost")
windrow_refuses(pushes_without_access must_not_compile.cc -DCASE=17 "expected read.x., mutate.x., .* or {} for none")
windrow_refuses(values_without_access must_not_compile.cc -DCASE=18 "a push without an access, or with a value")
windrow_refuses(values_of_bits must_not_compile.cc -DCASE=14 "of which std::vector makes no objects")
add_test(NAME engine.compiles_what_it_must
         COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -I${PROJECT_SOURCE_DIR}/engine/include -DCASE=0
                 ${CMAKE_CURRENT_SOURCE_DIR}/engine/must_not_compile.cc)
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

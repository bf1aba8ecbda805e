# Sanitizers take ten times as long or more. Each of the two long oracles runs so many ops. Allocations fail one after the
# other, up to as many as fault_strides, and then at growing distances; fault_soak fails each.
if(WINDROW_SANITIZE STREQUAL "thread")
  set(oracle_ops 50000)
  set(fault_strides 3)
  # These compare numbers. Their ops and threads are those of tests that ThreadSanitizer does see. And where a child forks
  # again, ThreadSanitizer now and then ends it: a new thread gets the id of one that a fork has left behind.
  string(
    JOIN ":" left_out
    "*/OnDeviceInFull.*" "All/EveryWorkload.DoesTheWorkThatTheFormulaSays/*" "All/EveryWorkload.Learns*"
    "All/ForkTest.AChildMayForkAgain/*" "All/ImageModels.*"
    "All/Resuming.*" "Attention.TakesNoMemoryForHiddenRowsInInference" "ChildSumTreeLstm.*" "DependencyParser.*"
    "EveryCell/1.*" "EveryCell/3.*" "EveryCell/4.*" "EveryCell/5.*" "EveryCell/6.*" "EveryCell/7.*" "EveryCell/8.*"
    "EveryCell/*.ComputesManyTilesAsTheOracleDoes"
    "EveryCell/*.ComputesWithoutOptimisationsAsTheOracleDoes" "LazyCells.ReadAnyResultsInAnyPlacesOfLists"
    "LazyRuns.ForgetWhatIsNotUsedForLong" "Optimiser.GivesTheSameBitsForAnyNumberOfWorkersAndPolicy" "ParserWorkload.*"
    "Tagger.*" "TranslationWorkload.*" "Translator.*")
elseif(WINDROW_SANITIZE)
  set(oracle_ops 30000)
  set(fault_strides 6)
  # The other cells use memory in the same ways.
  set(left_out)
  foreach(cell 1 3 4 5 6 7 8)
    list(APPEND left_out EveryCell/${cell}.ComputesByEverySchedulesAsTheOracleDoes
         EveryCell/${cell}.ComputesWithoutOptimisationsAsTheOracleDoes)
  endforeach()
  list(JOIN left_out ":" left_out)
else()
  set(oracle_ops 1000000)
  set(fault_strides 40)
endif()

# The thread sanitizer must see a race between ops; elsewhere the program just runs.
add_executable(planted_race sanitizer/planted_race.cc)
target_link_libraries(planted_race PRIVATE windrow::engine windrow_flags)
add_test(NAME sanitizer.planted_race COMMAND planted_race)
if(WINDROW_SANITIZE STREQUAL "thread")
  set_tests_properties(sanitizer.planted_race PROPERTIES PASS_REGULAR_EXPRESSION "data race.*planted_race.cc")
endif()

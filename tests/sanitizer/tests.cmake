# Sanitizers take ten times as long or more. Each of the two long oracles runs so many ops. Allocations fail one after the
# other, up to as many as fault_strides, and then at growing distances; fault_soak fails each.
if(WINDROW_SANITIZE STREQUAL "thread")
  set(oracle_ops 50000)
  set(fault_strides 3)
  # These compare numbers, count memory or read files. Their ops and threads are those of tests that ThreadSanitizer does
  # see. And where a child forks again, ThreadSanitizer now and then ends it: a new thread gets the id of one that a fork
  # has left behind.
  string(
    JOIN ":" left_out
    "*/KernelsOnDevice.NormalisesEqualElementsToZero/*" "*/KernelsOnDevice.TreatsNan*" "*/OnDeviceInFull.*"
    "All/EveryTunedModel.*" "All/EveryWorkload.DoesTheWorkThatTheFormulaSays/*" "All/EveryWorkload.Learns*"
    "All/ForkTest.AChildMayForkAgain/*" "All/ImageModels.*" "All/PublishedWorkload.*" "All/Resuming.*"
    "Attention.TakesNoMemory*" "ChildSumTreeLstm.*" "CudaLevels.AreComputedByLaunchesWhereTeamsCannotRunTogether"
    "DamagedPrograms.*" "DependencyParser.*" "EveryCell/*.ComputesManyTilesAsTheOracleDoes"
    "EveryCell/*.ComputesWithoutOptimisationsAsTheOracleDoes" "EveryCell/1.*" "EveryCell/3.*" "EveryCell/4.*"
    "EveryCell/5.*" "EveryCell/6.*" "EveryCell/7.*" "EveryCell/8.*" "LazyCells.ReadAnyResultsInAnyPlacesOfLists"
    "LazyFlushes.ComputeAMillionExpressionsInARow" "LazyMemory.OfChangingFormulasIsBoundedWithoutClear"
    "LazyRuns.ForgetWhatIsNotUsedForLong" "Optimiser.GivesTheSameBitsForAnyNumberOfWorkersAndPolicy"
    "Parameters.AloneAreRefusedByTheCompilerWithWhatToWriteInstead" "ParserWorkload.*" "Programs.*" "Tagger.*"
    "Trainer.ComputesAMinibatchInParts*" "Trainer.KeepsTheGradientsOfPartsBesideOneWithoutALoss"
    "Training.OfAChainOfAMillionVerticesEnds" "TranslationWorkload.*" "Translator.*")
elseif(WINDROW_SANITIZE)
  set(oracle_ops 30000)
  set(fault_strides 6)
  # The other cells use memory in the same ways; and these compare numbers, or count memory.
  set(left_out GeneratedListOps.FollowsThePublishedData LazyMemory.OfChangingFormulasIsBoundedWithoutClear
               NotFinite.OperandsGiveOnTheHostWhatTheReferenceSays Trainer.KeepsTheGradientsOfPartsBesideOneWithoutALoss)
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

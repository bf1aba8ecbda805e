windrow_test(
  training_test
  SOURCES devices/simulated.cc training/averages_test.cc training/compression_test.cc training/data_parallel_test.cc
          training/large_gradients_test.cc training/optimiser_test.cc training/parameter_sets_test.cc
          training/replicas_test.cc training/simulation_test.cc training/step_counts_test.cc
  WITHOUT_ENGINE training/checkpoint_fault_test.cc training/checkpoint_folder_test.cc training/file_fuzz_test.cc
                 training/record_test.cc training/tensor_file_test.cc training/whole_file_test.cc
  LINKS windrow::training
  INSIDE training
  DEFINITIONS WINDROW_SOURCE_DIR="${PROJECT_SOURCE_DIR}")

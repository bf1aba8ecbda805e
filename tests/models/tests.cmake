find_package(ZLIB REQUIRED)
windrow_test(
  models_test
  SOURCES batching/oracle.cc models/crf_test.cc models/data_files_test.cc models/networks_test.cc
          models/parser_test.cc models/program_test.cc models/saved_models_test.cc models/trainer_test.cc
          models/translator_test.cc models/word_vectors_test.cc models/workloads_test.cc
  WITHOUT_ENGINE models/generated_data_test.cc models/sentences_test.cc models/trees_test.cc
  LINKS windrow::models ZLIB::ZLIB
  INSIDE models)

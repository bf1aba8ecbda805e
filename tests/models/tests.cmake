find_package(ZLIB REQUIRED)
windrow_test(
  models_test
  SOURCES batching/oracle.cc models/crf_test.cc models/data_files_test.cc models/image_classification_test.cc
          models/networks_test.cc models/parser_test.cc models/program_test.cc models/resume_test.cc
          models/saved_models_test.cc models/sentence_model_test.cc models/trainer_test.cc models/translator_test.cc
          models/word_vectors_test.cc models/workloads_test.cc
  WITHOUT_ENGINE models/conllu_test.cc models/generated_data_test.cc models/images_test.cc models/listops_test.cc
                 models/parallel_text_test.cc models/published_data_test.cc models/sentences_test.cc
                 models/transitions_test.cc models/treebank_test.cc
  LINKS windrow::models ZLIB::ZLIB
  INSIDE models)

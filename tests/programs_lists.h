// For programs_test.cc: what the messages of windrow list. All of it is spelled out, so that a change is seen.
#pragma once

#define COMMANDS "train, eval, predict, export, explain, schedule, simulate, devices, completion, man"
#define TRAIN_HELP "; see windrow train --help"
#define ENGINE_HELP "; see windrow-perf engine --help"
#define MODELS_WITH_GRAPHS "tree-lstm, tree-fc, fixed-lstm, var-lstm, bilstm, bilstm-char, listops, dag, seq2seq"
#define MODELS MODELS_WITH_GRAPHS ", parser, mlp, cnn"
#define FLAGS                                                                                                        \
  "--help, model, --data, --train, --valid, --hidden, --embedding, --classes, --leaves, --vocabulary, --steps, "     \
  "--layers, "                                                                                                       \
  "--character-embedding, --character-hidden, --tag-embedding, --scorer, --filters, --more-filters, --tied, --crf, " \
  "--cell, --source, --target, --graph, --samples, --seed, "                                                         \
  "--dropout, --word-dropout, --vectors, --freeze-embedding, --batch, --epochs, --patience, --optimiser, --rate, "   \
  "--momentum, --penalty, --decay, --clip-norm, --clip-value, --accumulate, --micro-batches, --rate-schedule, "      \
  "--rate-factor, "                                                                                                  \
  "--rate-epochs, --warm-up, --average, --save, --save-every, --keep, --keep-best, --resume, --workers, --policy, "  \
  "--schedule, --device, --precision, --memory-limit, --devices, --comm, --comm-timeout, --compress, "               \
  "--compress-share, --compress-threshold, --local-steps, --sharded, --trace, --report, --compare" TRAIN_HELP

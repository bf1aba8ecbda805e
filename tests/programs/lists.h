// For programs_test.cc: what the messages of windrow list. All of it is spelled out, so that a change is seen.
#pragma once

#define COMMANDS "train, resume, eval, predict, sample, export, explain, schedule, simulate, devices, completion, man"
#define TRAIN_HELP "; see windrow train --help"
#define ENGINE_HELP "; see windrow-perf engine --help"
#define MODELS_WITH_GRAPHS "tree-lstm, tree-fc, fixed-lstm, var-lstm, bilstm, bilstm-char, listops, dag, seq2seq"
#define MODELS MODELS_WITH_GRAPHS ", parser, mlp, cnn"

// engine_soak [--ops N] [--seed S] [--program P]: random programs of random shapes against the interpreter, until N ops
// were pushed, a thousand million if N is not given. Stops at the first program with another outcome and says how to
// run that one alone.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tests/engine/player.h"

namespace windrow::testing {
namespace {

constexpr double ops_between_tellings = 1e7;

struct Options {
  double ops = 1e9;
  std::uint64_t seed = 1;
  std::uint64_t program = 0;  // alone, if not 0
};

/// All that a program is drawn from its own number, so that it can be run alone.
struct Shape {
  explicit Shape(std::uint64_t program) {
    std::mt19937_64 random(program);
    setup = every_setup[random() % std::size(every_setup)];
    pushers = static_cast<int>(1 + random() % 8);
    steps = 500 + random() % 10000;
    features.failures = random() % 8 != 0;
    features.lanes = random() % 4 == 0 ? 3 : 0;
    features.graphs = random() % 2 == 0;
    features.slow_one_in = 20u << random() % 5;
  }

  Setup setup;
  int pushers;
  std::size_t steps;
  Features features;
};

Played run(std::uint64_t program, const Shape& shape) {
  try {
    return play({.policy = shape.setup.policy, .workers = shape.setup.workers, .chaos_seed = program},
                {program, shape.steps, shape.pushers, shape.features});
  } catch (const std::exception& e) {
    return {.difference = std::string("an exception: ") + e.what()};
  }
}

/// How many ops it had; 0, after it has said so, if its outcome was another.
std::size_t passes(std::uint64_t program, const Shape& shape) {
  const Played played = run(program, shape);
  if (played.difference.empty()) return played.ops;
  std::printf("program %llu, policy %s, %d workers, %d pushers, %zu steps: the outcome differs in %s\n",
              static_cast<unsigned long long>(program), std::string(to_string(shape.setup.policy)).c_str(),
              shape.setup.workers, shape.pushers, shape.steps, played.difference.c_str());
  std::printf("run it alone: engine_soak --program %llu\n", static_cast<unsigned long long>(program));
  return 0;
}

bool soak(const Options& options) {
  if (options.program != 0) return passes(options.program, Shape(options.program)) > 0;
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  double done = 0, told = 0;
  for (std::uint64_t i = 1; done < options.ops; ++i) {
    const std::uint64_t program = mix(options.seed, i);
    const Shape shape(program);
    const std::size_t ops = passes(program, shape);
    if (ops == 0) return false;
    done += static_cast<double>(ops);
    if (done - told < std::min(options.ops / 20, ops_between_tellings) && done < options.ops) continue;
    told = done;
    std::printf("%.3g ops in %llu programs\n", done, static_cast<unsigned long long>(i));
    std::fflush(stdout);
  }
  return true;
}

/// False for arguments that are none.
bool parse(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; i += 2) {
    if (i + 1 == count) return false;
    char* end = nullptr;
    if (std::strcmp(arguments[i], "--ops") == 0) {
      options.ops = std::strtod(arguments[i + 1], &end);
    } else if (std::strcmp(arguments[i], "--seed") == 0) {
      options.seed = std::strtoull(arguments[i + 1], &end, 10);
    } else if (std::strcmp(arguments[i], "--program") == 0) {
      options.program = std::strtoull(arguments[i + 1], &end, 10);
    }
    if (end == nullptr || end == arguments[i + 1] || *end != '\0') return false;
  }
  return options.ops >= 1;  // nor is "nan" one
}

}  // namespace
}  // namespace windrow::testing

int main(int count, char** arguments) {
  windrow::testing::Options options;
  if (!windrow::testing::parse(count, arguments, options)) {
    std::fprintf(stderr, "engine_soak: expected [--ops N] [--seed S] [--program P], N 1 or more\n");
    return 2;
  }
  return windrow::testing::soak(options) ? 0 : 1;
}

#include "cuda/plugin/queue.h"
#include "tests/cuda/kernels.h"
#include "tests/mix.h"

namespace windrow::testing {
namespace {

struct Mix {
  static constexpr const char* name = "mix";
  std::uint64_t number;
  int ins, outs;
  const std::uint64_t* in[4];
  std::uint64_t* out[4];

  WINDROW_ON_DEVICE std::uint64_t cell(int position) const {
    std::uint64_t value = mix(number, static_cast<std::uint64_t>(position));
    for (int i = 0; i < ins; ++i) value = mix(value, *in[i]);
    return value;
  }
  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    team.each([&](int thread) {
      std::uint64_t values[4];  // an input may be an output
      for (int i = 0; i < outs; ++i) values[i] = cell(i);
      for (int i = 0; i < outs && thread == 0; ++i) *out[i] = values[i];
    });
  }
  template <class To>
  void accesses(To& to) const {
    for (int i = 0; i < ins; ++i) to.reads(in[i], 1);
    for (int i = 0; i < outs; ++i) to.writes(out[i], 1);
  }
};

struct Rotate {
  static constexpr const char* name = "rotate";
  float* to;
  bool with_barrier;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    auto shared = team.template shared<float>(64);
    team.each([&](int thread) { shared[(thread + 1) % 64] = static_cast<float>((thread + 1) % 64 + 1); });
    if (with_barrier) team.sync();
    team.each([&](int thread) { to[thread] = shared[thread]; });
  }
  template <class To>
  void accesses(To& out) const {
    out.writes(to, 64);
  }
};

struct Add {
  static constexpr const char* name = "add";
  float* to;
  const float* from;
  float number;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    team.each([&](int thread) {
      if (thread == 0) *to = *from + number;
    });
  }
  template <class To>
  void accesses(To& out) const {
    out.reads(from, 1);
    out.writes(to, 1);
  }
};

cuda::Queue queue_of(void* stream) { return {.stream = static_cast<cudaStream_t>(stream)}; }

Mix mix_of(const MixArguments& arguments) {
  Mix made{arguments.number, arguments.ins, arguments.outs, {}, {}};
  for (int i = 0; i < made.ins; ++i) made.in[i] = arguments.in[static_cast<std::size_t>(i)];
  for (int i = 0; i < made.outs; ++i) made.out[i] = arguments.out[static_cast<std::size_t>(i)];
  return made;
}

}  // namespace

std::uint64_t mixed(const MixArguments& arguments, int position) { return mix_of(arguments).cell(position); }

void launch_mix(void* stream, const MixArguments& arguments) {
  cuda::launch(queue_of(stream), {1, 1 * 32}, mix_of(arguments));
}
void launch_rotate(void* stream, float* to, bool with_barrier) {
  cuda::launch(queue_of(stream), {1, 64, 64 * sizeof(float)}, Rotate{to, with_barrier});
}
void launch_add(void* stream, float* to, const float* from, float number) {
  cuda::launch(queue_of(stream), {1, 32}, Add{to, from, number});
}

}  // namespace windrow::testing

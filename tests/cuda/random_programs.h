// Random programs over streams of CUDA devices and the host, compared with serial ones.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tests/cuda/kernels.h"
#include "windrow/cuda/device.h"
#include "windrow/memory/allocator.h"

namespace windrow::testing {

/// Programs of ops on the host and on two streams of each device, over cells in pinned memory, which all of them
/// access.
class RandomPrograms {
 public:
  RandomPrograms(Engine& engine, int devices) : engine_(engine) {
    for (int number = 0; number < devices; ++number) {
      devices_.push_back(cuda::open_device(engine, number));
      lanes_.push_back(devices_.back().device.lane);
      lanes_.push_back(devices_.back().copy_in);
    }
    staging_ = devices_[0].device.memory->staging();
    cells_ = reinterpret_cast<std::uint64_t*>(staging_->allocate(cells * sizeof(std::uint64_t)));
  }
  ~RandomPrograms() { staging_->deallocate(reinterpret_cast<std::byte*>(cells_), cells * sizeof(std::uint64_t)); }
  RandomPrograms(const RandomPrograms&) = delete;
  RandomPrograms& operator=(const RandomPrograms&) = delete;

  /// Returns whether the result is that of the serial program.
  bool run(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::array<std::uint64_t, cells> expected{};
    std::fill_n(cells_, cells, 0);
    std::array<Var, cells> vars;
    for (Var& var : vars) var = engine_.new_var("cell");
    for (std::uint64_t step = 0; step < 12; ++step) {
      const std::size_t lane = random() % (lanes_.size() + 1);
      std::vector<Access> accesses;
      MixArguments arguments{.number = step}, serial{.number = step};
      for (std::size_t cell = 0; cell < cells; ++cell) {
        const auto kind = random() % 6;  // 0: read, 1: overwrite, 2: mutate
        if (kind > 2) continue;
        if (kind != 1) {
          arguments.in[static_cast<std::size_t>(arguments.ins++)] = cells_ + cell;
          serial.in[static_cast<std::size_t>(serial.ins++)] = &expected[cell];
        }
        if (kind != 0) {
          arguments.out[static_cast<std::size_t>(arguments.outs++)] = cells_ + cell;
          serial.out[static_cast<std::size_t>(serial.outs++)] = &expected[cell];
        }
        accesses.push_back(kind == 0 ? read(vars[cell]) : kind == 1 ? overwrite(vars[cell]) : mutate(vars[cell]));
      }
      if (lane == lanes_.size()) {
        engine_.push([arguments] { mix_on_host(arguments); }, accesses);
      } else {
        engine_.push([arguments](OpContext& op) { launch_mix(cuda::native_stream(op.lane()), arguments); }, accesses,
                     {.lane = lanes_[lane]});
      }
      mix_on_host(serial);
    }
    engine_.wait_all();  // for those that read, too: the next program uses the same cells
    const bool equal = std::equal(expected.begin(), expected.end(), cells_);
    for (const Var var : vars) engine_.retire(var);
    return equal;
  }

 private:
  static constexpr std::size_t cells = 4;

  static void mix_on_host(const MixArguments& arguments) {
    std::array<std::uint64_t, cells> values{};
    for (int i = 0; i < arguments.outs; ++i) values[static_cast<std::size_t>(i)] = mixed(arguments, i);
    for (int i = 0; i < arguments.outs; ++i) {
      *arguments.out[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>(i)];
    }
  }

  Engine& engine_;
  std::vector<cuda::OpenDevice> devices_;
  std::vector<LaneId> lanes_;
  std::shared_ptr<Allocator> staging_;
  std::uint64_t* cells_;
};

}  // namespace windrow::testing

// A lower bound of the memory of a program.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "windrow/memory/internal/planner.h"

namespace windrow::perf {

/// Finds the most bytes of buffers of which each two are alive together in some order of the steps: a maximum antichain
/// of the order of lives, by Dilworth's theorem the sum of all bytes less a maximum flow from buffers to ones that
/// begin after they have ended. In time that grows with the third power of their size.
class Antichain {
 public:
  explicit Antichain(const MemoryProgram& program) : program_(program), users_(program.buffers.size()) {
    order_steps();
    for (const PlannedBuffer& buffer : program.buffers) spare_.push_back(buffer.bytes);
    for (std::uint32_t a = 0; a < spare_.size(); ++a) {
      std::vector<bool>& row = ends_before_.emplace_back(spare_.size());
      for (std::uint32_t b = 0; b < spare_.size(); ++b) row[b] = a != b && ends_before(a, b, no_buffer);
    }
    for (std::uint32_t step = 0; step < program.steps.size(); ++step) {
      for (const auto& [a, b] : program.steps[step].in_place) {
        if (ends_before(a, b, step)) ends_before_[a][b] = true;
      }
    }
    flow_.assign(spare_.size(), std::vector<std::size_t>(spare_.size()));
  }

  std::size_t bytes() {
    std::size_t sum = 0;
    for (std::uint32_t a = 0; a < spare_.size(); ++a) {
      std::size_t left = program_.buffers[a].bytes;
      for (std::size_t sent = 1; left > 0 && sent > 0; left -= sent) {
        seen_.assign(spare_.size(), false);
        sent = send(a, left);
      }
      sum += left;
    }
    return sum;
  }

 private:
  /// Readers of a buffer come after its last writer, and a writer after all earlier users.
  void order_steps() {
    std::vector<std::uint32_t> writer(users_.size(), no_buffer);
    std::vector<std::vector<std::uint32_t>> readers(users_.size());  // since the last writer
    for (std::uint32_t step = 0; step < program_.steps.size(); ++step) {
      std::vector<bool>& before = before_.emplace_back(program_.steps.size());
      const auto follow = [&](std::uint32_t other) {
        if (other == no_buffer || other == step) return;
        before[other] = true;
        for (std::uint32_t s = 0; s < other; ++s) before[s] = before[s] || before_[other][s];
      };
      if (program_.order == StepOrder::serial && step > 0) follow(step - 1);
      for (const std::uint32_t buffer : program_.steps[step].reads) {
        follow(writer[buffer]);
        readers[buffer].push_back(step);
      }
      for (const std::uint32_t buffer : program_.steps[step].writes) {
        follow(std::exchange(writer[buffer], step));
        std::ranges::for_each(std::exchange(readers[buffer], {}), follow);
      }
      for (const auto* list : {&program_.steps[step].reads, &program_.steps[step].writes}) {
        for (const std::uint32_t buffer : *list) users_[buffer].push_back(step);
      }
    }
  }
  /// Whether all users of a, but the step `both`, finish before all users of b, but that step.
  bool ends_before(std::uint32_t a, std::uint32_t b, std::uint32_t both) const {
    const Held of_a = program_.buffers[a].held, of_b = program_.buffers[b].held;
    if (of_a == Held::after || of_a == Held::throughout || of_b == Held::before || of_b == Held::throughout) {
      return false;
    }
    return std::ranges::all_of(users_[a], [&](std::uint32_t u) {
      return std::ranges::all_of(users_[b], [&](std::uint32_t v) { return u == v ? u == both : bool{before_[v][u]}; });
    });
  }
  /// Sends bytes along one path that augments the flow, at most `most`; returns how many.
  std::size_t send(std::uint32_t a, std::size_t most) {
    for (std::uint32_t b = 0; b < spare_.size(); ++b) {
      if (!ends_before_[a][b] || seen_[b]) continue;
      seen_[b] = true;
      std::size_t sent = std::min(most, spare_[b]);
      spare_[b] -= sent;
      for (std::uint32_t c = 0; sent == 0 && c < spare_.size(); ++c) {
        if (flow_[c][b] > 0 && c != a) flow_[c][b] -= sent = send(c, std::min(most, flow_[c][b]));
      }
      flow_[a][b] += sent;
      if (sent > 0) return sent;
    }
    return 0;
  }

  const MemoryProgram& program_;
  std::vector<std::vector<std::uint32_t>> users_;  // by buffer
  std::vector<std::vector<bool>> before_;          // by step: the steps that finish before it begins
  std::vector<std::vector<bool>> ends_before_;     // by buffer
  std::vector<std::size_t> spare_;                 // by buffer: bytes that it may still receive
  std::vector<std::vector<std::size_t>> flow_;     // by sender and receiver
  std::vector<bool> seen_;                         // receivers, on the way of one path
};

}  // namespace windrow::perf

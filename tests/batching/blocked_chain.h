// A recurrent network whose backward pass a test can stop.
#pragma once

#include <future>
#include <stdexcept>

#include "tests/batching/support.h"

namespace windrow::testing {

/// Steps of the current test, which the kernel of the backward pass calls before it computes.
inline std::function<void()>* during_backward = nullptr;

/// While it lives, the backward pass of a BlockedChain calls the function.
class DuringBackward {
 public:
  explicit DuringBackward(std::function<void()> call) : call_(std::move(call)) { during_backward = &call_; }
  ~DuringBackward() { during_backward = nullptr; }
  DuringBackward(const DuringBackward&) = delete;
  DuringBackward& operator=(const DuringBackward&) = delete;

 private:
  std::function<void()> call_;
};

/// Something that a kernel waits for, but not for ever: it throws then, which fails its minibatch.
class Awaited {
 public:
  void come() { promise_.set_value(); }
  void wait() const {
    if (!came_within(std::chrono::seconds(30))) throw std::runtime_error("in vain");
  }
  bool came_within(std::chrono::seconds time) const { return future_.wait_for(time) == std::future_status::ready; }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future();
};

/// h' = tanh(x w + h u), with a loss of h' head in each step, for a few sequences. The gradient of `head` needs nothing
/// of the backward pass, that of `u` needs it but for the first steps, and that of `w` needs all of it.
struct BlockedChain {
  static constexpr Index width = 8;

  explicit BlockedChain(const EngineOptions& options = {.workers = 2}, Device (*open)(Engine&) = blocked_host)
      : engine(options), device(open(engine)) {
    Floats x;
    for (int i = 0; i < 12; ++i) x.push_back(0.25f * static_cast<float>(i / 2 + i % 2) - 0.5f);
    for (int i = 0; i < 3; ++i) graphs.emplace_back(function, chain_of(6, x));
  }
  static Device blocked_host(Engine& engine) {
    Device host = host_device(engine);
    host.kernels.add(op::tanh_gradient, [](const KernelCall<float>& call) {
      if (during_backward != nullptr) (*during_backward)();
      host_kernels().find(op::tanh_gradient)(call);
    });
    return host;
  }

  Minibatch differentiate() {
    std::vector<const InputGraph*> pointers;
    for (const InputGraph& graph : graphs) pointers.push_back(&graph);
    return runner.differentiate(pointers);
  }
  Var gradient(const Parameter& parameter) const { return parameters.gradient(parameter).all->var(); }
  /// Calls come() when the gradient is there.
  void tell(const Parameter& parameter, Awaited& of) {
    engine.push([&of] { of.come(); }, {read(gradient(parameter))});
  }

  Engine engine;
  Device device;
  Parameters parameters{device, 1};
  Parameter w = parameters.add("w", 2, width, Initial::uniform(-1, 1));
  Parameter u = parameters.add("u", width, width, Initial::uniform(-1, 1));
  Parameter head = parameters.add("head", width, 1, Initial::uniform(-1, 1));
  VertexFunction function{"blocked_chain", {.arity = 1}, [this](Vertex& v) {
                            const State h = v.state("h", width);
                            const Expr next = tanh(matmul(v.pull("x", 2), w) + matmul(v.gather(0, h), u));
                            v.scatter(h, next);
                            v.loss(square(matmul(next, head)));
                          }};
  Runner runner{device, function, parameters, {.op_flops = 1}};
  std::vector<InputGraph> graphs;
};

}  // namespace windrow::testing

#include "batching/step_listing.h"

#include "batching/antichain.h"

namespace windrow::perf {

StepListing::StepListing(const NamedProgram& program, const ProgramSizes& sizes) {
  Engine engine({.policy = Policy::serial});
  const Device host = host_device(engine);
  const std::unique_ptr<OperatorProgram> listed = program.make(host, sizes);
  const Tape::Apply apply = applied_to_new(host);
  const Tensor result = listed->step(
      listed->inputs(), [&](const Operator& op, const Operands& operands, const Tensor* out, auto pushed_at) {
        const Tensor made = apply(op, operands, out, pushed_at);
        if (out == nullptr) add_result(made, op.name);
        add_step(op, operands, made);
        return made;
      });
  result_ = number_of(result.buffer());
  held_.clear();
  numbers_.clear();
}

BoundedPlan StepListing::plan(StepOrder order, Held held) const {
  MemoryProgram program = program_;
  program.order = order;
  program.buffers[result_].held = held;
  return {plan_memory(program), Antichain(program).bytes()};
}

void StepListing::add_result(const Tensor& made, OpName name) {
  const std::uint32_t number = program_.add(PlannedBuffer{.bytes = made.buffer()->size()});
  results_.push_back({made.rows(), made.width(), name, number});
  hold(made.buffer(), number);
}

void StepListing::hold(const std::shared_ptr<Buffer>& buffer, std::uint32_t number) {
  held_.push_back(buffer);
  numbers_.emplace(buffer.get(), number);
}

std::uint32_t StepListing::number_of(const std::shared_ptr<Buffer>& buffer) {
  const auto found = numbers_.find(buffer.get());
  if (found != numbers_.end()) return found->second;
  const std::uint32_t number = program_.add(PlannedBuffer{.held = Held::throughout});
  hold(buffer, number);
  return number;
}

void StepListing::add_step(const Operator& op, const Operands& operands, const Tensor& out) {
  PlannedStep step;
  const std::uint32_t result = number_of(out.buffer());
  for (const Tensor& tensor : operands.in) step.reads.push_back(number_of(tensor.buffer()));
  for (const IntTensor& tensor : operands.indices) step.reads.push_back(number_of(tensor.buffer()));
  step.writes.push_back(result);
  for (const Tensor& state : operands.states) {
    step.reads.push_back(number_of(state.buffer()));
    step.writes.push_back(number_of(state.buffer()));
  }
  if (operands.write == Write::add) {
    step.reads.push_back(result);
  } else if (op.locality == Locality::elementwise) {
    for (const Tensor& tensor : operands.in) {
      const bool same_places = tensor.whole() && tensor.buffer()->size() == out.buffer()->size();
      if (same_places) step.in_place.push_back({number_of(tensor.buffer()), result});
    }
  }
  program_.add(std::move(step));
}

}  // namespace windrow::perf

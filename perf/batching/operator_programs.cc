#include "batching/operator_programs.h"

#include <optional>
#include <vector>

#include "windrow/ops/random.h"

namespace windrow::perf {
namespace {

constexpr Index sequence_length = 16, leaves_of_tree = 16, classes = 8;
constexpr int forward_layers = 20;

std::source_location here(std::source_location from = std::source_location::current()) { return from; }

IntTensor column_of(const Device& device, Index rows, Index (*number)(Index row)) {
  const IntTensor column(device, rows, 1, "numbers");
  std::vector<std::int32_t> numbers;
  for (Index r = 0; r < rows; ++r) numbers.push_back(static_cast<std::int32_t>(number(r)));
  column.set(numbers);
  return column;
}

/// Parameters and inputs with random elements.
class RandomProgram : public OperatorProgram {
 protected:
  RandomProgram(const Device& device, const ProgramSizes& sizes)
      : device_(device), sizes_(sizes), draws_(*device.engine, sizes.seed) {}

  Tensor filled(Index rows, Index width, float most, OpName name) {
    const Tensor made(device_, rows, width, name);
    draws_.uniform(made, -most, most);
    return made;
  }
  Tensor parameter(Index rows, Index width) { return filled(rows, width, 0.1f, "parameter"); }

  const Device device_;
  const ProgramSizes sizes_;
  Generator draws_;
};

/// A loss, its gradients, and a step of the optimiser.
class TrainingProgram : public RandomProgram {
 public:
  Tensor step(const StaticInputs& inputs, const Tape::Apply& apply) final {
    Tape tape(device_, apply);
    for (const Tensor& value : values_) tape.watch(value);
    const Tensor losses = loss(inputs, tape);
    tape.backward(losses);
    for (std::size_t k = 0; k < values_.size(); ++k) {
      apply(op::momentum_step,
            {.in = {*tape.gradient(values_[k]), numbers_}, .write = Write::add, .states = {states_[k]}}, &values_[k],
            here());
    }
    return losses;
  }

 protected:
  TrainingProgram(const Device& device, const ProgramSizes& sizes)
      : RandomProgram(device, sizes), numbers_(device, 1, StepNumbers::count, "numbers") {
    const StepNumbers numbers{.rate = 1e-4f, .scale = 1 / static_cast<float>(sizes.batch), .first = 0.9f};
    numbers_.set({numbers.begin(), numbers.begin() + StepNumbers::count});
  }

  void learn(Index rows, Index width) {
    values_.push_back(parameter(rows, width));
    states_.emplace_back(device_, rows, width, OpName("state"));
    states_.back().set(std::vector<float>(static_cast<std::size_t>(rows * width), 0));
  }
  virtual Tensor loss(const StaticInputs& inputs, Tape& tape) = 0;

  const Tensor numbers_;
  std::vector<Tensor> values_, states_;
};

class MlpStep final : public TrainingProgram {
 public:
  MlpStep(const Device& device, const ProgramSizes& sizes) : TrainingProgram(device, sizes) {
    inputs_.in.push_back(filled(sizes.batch, sizes.width, 1, "images"));
    inputs_.indices.push_back(column_of(device, sizes.batch, [](Index) { return Index{0}; }));
    for (int layer = 0; layer < 3; ++layer) {
      learn(sizes.width, sizes.width);
      learn(1, sizes.width);
      keys_.emplace_back(device, sizes.batch, 3, OpName("keys"));
    }
  }

 private:
  Tensor loss(const StaticInputs& inputs, Tape& tape) override {
    Tensor x = inputs.in.front();
    for (std::size_t k = 0; k < values_.size(); k += 2) {
      x = tape.apply(op::add_bias, {.in = {tape.apply(op::matmul, {.in = {x, values_[k]}}), values_[k + 1]}});
      if (k + 2 == values_.size()) break;
      const IntTensor& keys = keys_[k / 2];
      draws_.dropout_keys(keys);
      x = tape.apply(op::relu, {.in = {x}});
      x = tape.apply(op::dropout, {.in = {x}, .indices = {keys}, .attributes = op::dropout_by(0.25, 3, 0)});
    }
    return tape.apply(op::softmax_cross_entropy, {.in = {x}, .indices = inputs.indices});
  }

  std::vector<IntTensor> keys_;
};

class FixedLstmStep final : public TrainingProgram {
 public:
  FixedLstmStep(const Device& device, const ProgramSizes& sizes)
      : TrainingProgram(device, sizes), zeros_(device, sizes.batch, sizes.width, "zeros") {
    const Index all = sequence_length * sizes.batch;  // the samples of a step lie one behind the other
    inputs_.in.push_back(filled(all, sizes.width, 1, "words"));
    inputs_.indices.push_back(column_of(device, all, [](Index r) { return r % classes; }));
    zeros_.set(std::vector<float>(static_cast<std::size_t>(sizes.batch * sizes.width), 0));
    learn(sizes.width, 4 * sizes.width);
    learn(sizes.width, 4 * sizes.width);
    learn(1, 4 * sizes.width);
    learn(sizes.width, classes);
  }

  bool use_blocks(const StaticOptions& options) override {
    const auto body = [this](Tape& tape, const StaticInputs& of) { return cell(tape, of); };
    block_.emplace(device_, std::vector<Tensor>(values_.begin(), values_.begin() + 3), body, options);
    return true;
  }

 private:
  Tensor loss(const StaticInputs& inputs, Tape& tape) override {
    std::optional<Tensor> sum;
    std::vector<Tensor> state = {zeros_, zeros_};
    for (Index t = 0; t < sequence_length; ++t) {
      const Index begin = t * sizes_.batch, end = begin + sizes_.batch;
      const StaticInputs call{.in = {inputs.in.front().row_range(begin, end), state[0], state[1]}};
      state = block_ ? (*block_)(tape, call, here()) : cell(tape, call);
      const Tensor scores = tape.apply(op::matmul, {.in = {state[0], values_[3]}}, here());
      const Tensor losses =
          tape.apply(op::softmax_cross_entropy,
                     {.in = {scores}, .indices = {inputs.indices.front().row_range(begin, end)}}, here());
      sum = sum ? tape.apply(op::add, {.in = {*sum, losses}}, here()) : losses;
    }
    return *sum;
  }

  /// From a word and the states before it.
  std::vector<Tensor> cell(Tape& tape, const StaticInputs& of) const {
    const auto apply = [&](const Operator& op, const std::vector<Tensor>& in, const Attributes& attributes = {}) {
      return tape.apply(op, {.in = in, .attributes = attributes}, here());
    };
    const Tensor all =
        apply(op::add_bias,
              {apply(op::add, {apply(op::matmul, {of.in[0], values_[0]}), apply(op::matmul, {of.in[1], values_[1]})}),
               values_[2]});
    const auto gate = [&](Index k, const Operator& op) {
      return apply(op, {apply(op::slice, {all}, op::columns(k * sizes_.width, (k + 1) * sizes_.width))});
    };
    const Tensor memory = apply(op::add, {apply(op::mul, {gate(0, op::sigmoid), of.in[2]}),
                                          apply(op::mul, {gate(1, op::sigmoid), gate(2, op::tanh)})});
    return {apply(op::mul, {gate(3, op::sigmoid), apply(op::tanh, {memory})}), memory};
  }

  const Tensor zeros_;  // the states before the first word
  std::optional<StaticBlock> block_;
};

class MlpForward final : public RandomProgram {
 public:
  MlpForward(const Device& device, const ProgramSizes& sizes) : RandomProgram(device, sizes) {
    inputs_.in.push_back(filled(sizes.batch, sizes.width, 1, "images"));
    for (int layer = 0; layer < forward_layers; ++layer) {
      weights_.push_back(parameter(sizes.width, sizes.width));
      offsets_.push_back(parameter(1, sizes.width));
    }
  }

  Tensor step(const StaticInputs& inputs, const Tape::Apply& apply) override {
    Tensor x = inputs.in.front();
    for (std::size_t layer = 0; layer < weights_.size(); ++layer) {
      x = apply(op::matmul, {.in = {x, weights_[layer]}}, nullptr, here());
      x = apply(op::add_bias, {.in = {x, offsets_[layer]}}, nullptr, here());
      x = apply(op::relu, {.in = {x}}, nullptr, here());
    }
    return x;
  }

 private:
  std::vector<Tensor> weights_, offsets_;
};

class TreeLstmForward final : public RandomProgram {
 public:
  TreeLstmForward(const Device& device, const ProgramSizes& sizes)
      : RandomProgram(device, sizes),
        of_word_(parameter(sizes.width, 3 * sizes.width)),
        of_left_(parameter(sizes.width, 5 * sizes.width)),
        of_right_(parameter(sizes.width, 5 * sizes.width)),
        word_offset_(parameter(1, 3 * sizes.width)),
        offset_(parameter(1, 5 * sizes.width)) {
    inputs_.in.push_back(filled(leaves_of_tree * sizes.batch, sizes.width, 1, "words"));
    for (Index rows = leaves_of_tree * sizes.batch / 2; rows >= sizes.batch; rows /= 2) {
      left_.push_back(column_of(device, rows, [](Index r) { return 2 * r; }));
      right_.push_back(column_of(device, rows, [](Index r) { return 2 * r + 1; }));
    }
  }

  Tensor step(const StaticInputs& inputs, const Tape::Apply& apply_to) override {
    const auto apply = [&](const Operator& op, const Operands& operands) {
      return apply_to(op, operands, nullptr, here());
    };
    const auto gate = [&](const Tensor& all, Index k, const Operator& op) {
      const Attributes columns = op::columns(k * sizes_.width, (k + 1) * sizes_.width);
      return apply(op, {.in = {apply(op::slice, {.in = {all}, .attributes = columns})}});
    };
    const auto product = [&](const Tensor& x, const Tensor& y) { return apply(op::mul, {.in = {x, y}}); };
    const auto sum = [&](const Tensor& x, const Tensor& y) { return apply(op::add, {.in = {x, y}}); };
    Tensor all = apply(op::matmul, {.in = {inputs.in.front(), of_word_}});
    all = apply(op::add_bias, {.in = {all, word_offset_}});
    Tensor cell = product(gate(all, 0, op::sigmoid), gate(all, 1, op::tanh));
    Tensor hidden = product(gate(all, 2, op::sigmoid), apply(op::tanh, {.in = {cell}}));
    for (std::size_t level = 0; level < left_.size(); ++level) {
      const auto children = [&](const Tensor& of, const IntTensor& which) {
        return apply(op::gather_rows, {.in = {of}, .indices = {which}});
      };
      all = sum(apply(op::matmul, {.in = {children(hidden, left_[level]), of_left_}}),
                apply(op::matmul, {.in = {children(hidden, right_[level]), of_right_}}));
      all = apply(op::add_bias, {.in = {all, offset_}});
      const Tensor kept = sum(product(gate(all, 3, op::sigmoid), children(cell, left_[level])),
                              product(gate(all, 4, op::sigmoid), children(cell, right_[level])));
      cell = sum(product(gate(all, 0, op::sigmoid), gate(all, 1, op::tanh)), kept);
      hidden = product(gate(all, 2, op::sigmoid), apply(op::tanh, {.in = {cell}}));
    }
    return hidden;
  }

 private:
  const Tensor of_word_, of_left_, of_right_, word_offset_, offset_;
  std::vector<IntTensor> left_, right_;  // the rows of the children, by level
};

template <class Program>
std::unique_ptr<OperatorProgram> make(const Device& device, const ProgramSizes& sizes) {
  return std::make_unique<Program>(device, sizes);
}

}  // namespace

const NamedProgram mlp_step{"mlp", make<MlpStep>};
const NamedProgram fixed_lstm_step{"fixed-lstm", make<FixedLstmStep>};
const NamedProgram mlp_forward{"mlp, forward", make<MlpForward>};
const NamedProgram tree_lstm_forward{"tree-lstm, forward", make<TreeLstmForward>};

Tape::Apply applied_to_new(const Device& device) {
  return [device](const Operator& op, const Operands& operands, const Tensor* out, std::source_location pushed_at) {
    if (out == nullptr) return windrow::apply(device, op, operands, pushed_at);
    windrow::apply(device, op, operands, *out, pushed_at);
    return *out;
  };
}

}  // namespace windrow::perf

#include "batching/hand_tagger.h"

namespace windrow::perf {

TensorSentences to_tensors(const Device& device, std::vector<std::int32_t> words, std::vector<std::int32_t> tags,
                           Index sentences) {
  const auto rows = static_cast<Index>(words.size());
  const IntTensor of_words(device, rows, 1), of_tags(device, rows, 1);
  of_words.set(words);
  of_tags.set(std::move(tags));
  return {of_words, of_tags, std::move(words), sentences};
}

HandTagger::HandTagger(const Device& device, Parameters& parameters, Index hidden, int layers)
    : device_(device), parameters_(parameters), hidden_(hidden), layers_(layers) {}

void HandTagger::set_gradient(const std::string& parameter, const Operator& op, std::vector<Tensor> in) {
  parameters_.set_gradient(parameters_.find(parameter), make(op, std::move(in)));
}

/// The rows of a step; steps are counted in the order of reading.
HandTagger::Span HandTagger::rows(const Way& way, Index step) const {
  const Index word = way.forward ? step : steps_ - 1 - step;
  return {word * sentences_, (word + 1) * sentences_};
}

HandTagger::Memory HandTagger::read(const Way& way, const Tensor& in) const {
  const Index words = steps_ * sentences_;
  const Memory memory{Tensor(device_, words, 4 * hidden_), Tensor(device_, words, hidden_),
                      Tensor(device_, words, hidden_), Tensor(device_, words, hidden_)};
  const Tensor projected = make(op::matmul, {in, value(way.name + " in")});
  to(memory.gates, op::add_bias, {projected, value(way.name + " bias")});
  for (Index step = 0; step < steps_; ++step) read_step(way, memory, step);
  return memory;
}

void HandTagger::read_step(const Way& way, const Memory& memory, Index step) const {
  const Index h = hidden_;
  const auto at = [&](const Tensor& tensor, Index when) {
    const Span r = rows(way, when);
    return tensor.row_range(r.begin, r.end);
  };
  const Tensor gates = at(memory.gates, step), cells = at(memory.cells, step), bounded = at(memory.bounded, step);
  if (step > 0) to(gates, op::matmul, {at(memory.states, step - 1), value(way.name + " recurrent")}, Write::add);
  const Tensor squashed = gates.column_range(0, 3 * h), fresh = gates.column_range(3 * h, 4 * h);
  to(squashed, op::sigmoid, {squashed});
  to(fresh, op::tanh, {fresh});
  to(cells, op::mul, {gates.column_range(0, h), fresh});
  if (step > 0) to(cells, op::mul, {gates.column_range(2 * h, 3 * h), at(memory.cells, step - 1)}, Write::add);
  to(bounded, op::tanh, {cells});
  to(at(memory.states, step), op::mul, {gates.column_range(h, 2 * h), bounded});
}

Tensor HandTagger::read_back(const Way& way, const Memory& memory, const Tensor& states) {
  const Index h = hidden_;
  const Tensor all(device_, steps_ * sentences_, 4 * h);
  const Tensor part(device_, sentences_, h), cell(device_, sentences_, h);
  for (Index step = steps_; step-- > 0;) {
    const auto at = [&](const Tensor& tensor, Index when) {
      const Span r = rows(way, when);
      return tensor.row_range(r.begin, r.end);
    };
    const Tensor gates = at(memory.gates, step), bounded = at(memory.bounded, step), state = at(states, step);
    const Tensor gradient = at(all, step);
    const auto gate = [h](const Tensor& of, Index number) { return of.column_range(number * h, (number + 1) * h); };
    const Tensor in = gate(gates, 0), out = gate(gates, 1), keep = gate(gates, 2), fresh = gate(gates, 3);
    to(part, op::mul, {state, bounded});
    to(gate(gradient, 1), op::sigmoid_gradient, {out, part});
    to(part, op::mul, {state, out});
    to(cell, op::tanh_gradient, {bounded, part}, step + 1 == steps_ ? Write::overwrite : Write::add);
    to(part, op::mul, {cell, fresh});
    to(gate(gradient, 0), op::sigmoid_gradient, {in, part});
    to(part, op::mul, {cell, in});
    to(gate(gradient, 3), op::tanh_gradient, {fresh, part});
    if (step == 0) {
      apply(device_, op::scale, {.in = {keep}, .attributes = op::scaled_by(0)}, gate(gradient, 2));
      continue;
    }
    to(part, op::mul, {cell, at(memory.cells, step - 1)});
    to(gate(gradient, 2), op::sigmoid_gradient, {keep, part});
    to(cell, op::mul, {cell, keep});
    to(at(states, step - 1), op::matmul_nt, {gradient, value(way.name + " recurrent")}, Write::add);
  }
  recurrent_gradient(way, memory, all);
  set_gradient(way.name + " bias", op::column_sum, {all});
  return all;
}

/// Multiplies the states of all steps but the last by the gate gradients of the steps that follow them. Both lie in
/// contiguous rows, so one product suffices.
void HandTagger::recurrent_gradient(const Way& way, const Memory& memory, const Tensor& gates) {
  const Index words = steps_ * sentences_, rest = words - sentences_;
  const Tensor before = way.forward ? memory.states.row_range(0, rest) : memory.states.row_range(sentences_, words);
  const Tensor behind = way.forward ? gates.row_range(sentences_, words) : gates.row_range(0, rest);
  set_gradient(way.name + " recurrent", op::matmul_tn, {before, behind});
}

Tensor HandTagger::differentiate(const TensorSentences& minibatch) {
  parameters_.begin_minibatch();
  sentences_ = minibatch.sentences;
  steps_ = minibatch.words.rows() / sentences_;
  const Index words = steps_ * sentences_, h = hidden_;
  // Forward.
  std::vector<Tensor> in = {
      apply(device_, op::embedding, {.in = {value("words")}, .indices = {minibatch.words}, .attributes = {}})};
  std::vector<std::vector<Memory>> layers;
  const auto ways_of = [](int layer) {
    const std::string number = std::to_string(layer + 1);
    return std::vector<Way>{{"forward " + number, true}, {"backward " + number, false}};
  };
  for (int layer = 0; layer < layers_; ++layer) {
    std::vector<Memory> both;
    for (const Way& way : ways_of(layer)) both.push_back(read(way, in.back()));
    in.push_back(make(op::concat, {both[0].states, both[1].states}));
    layers.push_back(std::move(both));
  }
  const Tensor logits = make(op::matmul, {in.back(), value("head")}), told(device_, words, logits.width());
  to(told, op::add_bias, {logits, value("head_bias")});
  const Tensor losses =
      apply(device_, op::softmax_cross_entropy, {.in = {told}, .indices = {minibatch.tags}, .attributes = {}});
  const Tensor loss = make(op::column_sum, {losses});
  // Backward.
  const Tensor ones(device_, words, 1);
  ones.set(std::vector<float>(static_cast<std::size_t>(words), 1));
  const Tensor above = apply(device_, op::softmax_cross_entropy_gradient,
                             {.in = {told, ones}, .indices = {minibatch.tags}, .attributes = {}});
  set_gradient("head", op::matmul_tn, {in.back(), above});
  set_gradient("head_bias", op::column_sum, {above});
  std::vector<Tensor> states;  // gradients of the states of both directions
  for (const Index half : {0, 1}) {
    states.push_back(make(op::matmul_nt, {above, value("head").row_range(half * h, (half + 1) * h)}));
  }
  for (int layer = layers_; layer-- > 0;) {
    const auto at = static_cast<std::size_t>(layer);
    std::vector<Tensor> gates;
    for (const Way& way : ways_of(layer)) {
      const std::size_t direction = way.forward ? 0 : 1;
      gates.push_back(read_back(way, layers[at][direction], states[direction]));
      set_gradient(way.name + " in", op::matmul_tn, {in[at], gates[direction]});
    }
    const auto below = [&](Index begin, Index end) {
      const auto weights = [&](std::size_t direction) {
        return value(ways_of(layer)[direction].name + " in").row_range(begin, end);
      };
      const Tensor sum = make(op::matmul_nt, {gates[0], weights(0)});
      to(sum, op::matmul_nt, {gates[1], weights(1)}, Write::add);
      return sum;
    };
    if (layer > 0) {
      states = {below(0, h), below(h, 2 * h)};
    } else {
      parameters_.set_gradient(parameters_.find("words"), minibatch.numbers, below(0, in[0].width()));
    }
  }
  return loss;
}

}  // namespace windrow::perf

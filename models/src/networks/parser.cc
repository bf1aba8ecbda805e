// The transition system and the network of the parser.
#include <algorithm>
#include <optional>
#include <string>

#include "windrow/models/dependency_parser.h"

namespace windrow {
namespace {

std::int32_t head_of(std::int32_t word, std::span<const std::int32_t> heads) {
  return heads[static_cast<std::size_t>(word) - 1];
}

}  // namespace

ArcHybrid::ArcHybrid(std::int32_t words) : heads_(static_cast<std::size_t>(words), none) {}

bool ArcHybrid::legal(Transition transition) const {
  switch (transition) {
    case Transition::shift:
      return next_ != 0;
    case Transition::left:
      return next_ != 0 ? !stack_.empty() : stack_.size() == 1;
    default:
      return stack_.size() >= 2;
  }
}

void ArcHybrid::apply(Transition transition) {
  if (transition == Transition::shift) {
    stack_.push_back(next_);
    next_ = next_ == static_cast<std::int32_t>(heads_.size()) ? 0 : next_ + 1;
    return;
  }
  const std::int32_t head = transition == Transition::left ? next_ : stack(1);
  heads_[static_cast<std::size_t>(stack(0)) - 1] = head;
  stack_.pop_back();
}

int ArcHybrid::cost(Transition transition, std::span<const std::int32_t> heads) const {
  if (transition == Transition::shift) {
    // After a shift, the word cannot get a head below the top of the stack, and no dependent from the stack. Only the
    // lowest word of the stack can depend on the root.
    const std::int32_t head = head_of(next_, heads);
    const bool below = std::find(stack_.begin(), stack_.end(), head) != stack_.end() && head != stack(0);
    const auto dependents =
        std::count_if(stack_.begin(), stack_.end(), [&](std::int32_t word) { return head_of(word, heads) == next_; });
    return static_cast<int>(dependents) + (below || (head == 0 && !stack_.empty()));
  }
  // The top of the stack loses its dependents in the buffer, and all heads except the one that it gets.
  const std::int32_t word = stack(0), head = head_of(word, heads);
  const bool behind = next_ != 0 && (head >= next_ || (head == 0 && stack_.size() == 1));
  const bool gets_it = head == (transition == Transition::left ? next_ : stack(1));
  const auto from = next_ == 0 ? heads.end() : heads.begin() + (next_ - 1);
  const auto dependents = std::count(from, heads.end(), word);
  return static_cast<int>(dependents) + (!gets_it && (behind || head == stack(1)));
}

Parser::Parser(Parameters& parameters, ParserSizes sizes)
    : sizes_(sizes),
      words_(parameters.add("words", sizes.words + 1, sizes.word, Initial::uniform(-1, 1))),
      tags_(parameters.add("tags", sizes.tags + 1, sizes.tag, Initial::uniform(-1, 1))),
      seen_(parameters.add_product("seen", 2 * sizes.hidden, static_cast<Index>(places) * sizes.scorer)),
      nothing_(parameters.add("nothing", static_cast<Index>(places), sizes.scorer, Initial::zeros())),
      scorer_bias_(parameters.add("scorer_bias", 1, sizes.scorer, Initial::zeros())),
      out_(parameters.add_product("out", sizes.scorer, actions())),
      out_bias_(parameters.add("out_bias", 1, actions(), Initial::zeros())) {
  if (sizes.layers < 1) throw MisuseError("parser: " + std::to_string(sizes.layers) + " layers; expected at least 1");
  const Index h = sizes.hidden;
  for (int layer = 0; layer < sizes.layers; ++layer) {
    const Index in = layer == 0 ? sizes.word + sizes.tag : 2 * h;
    const auto lstm = [&](const std::string& way) -> Lstm {
      const std::string name = way + std::to_string(layer);
      return {parameters.add_product(name + "_in", in, 4 * h), parameters.add_product(name + "_inner", h, 4 * h),
              parameters.add(name + "_bias", 1, 4 * h, Initial::zeros()),
              parameters.add(name + "_forget_bias", 1, h, Initial::constant(1))};
    };
    layers_.push_back({lstm("forward"), lstm("backward")});
  }
}

ParserAction Parser::action(std::size_t number) {
  if (number == 0) return {Transition::shift, 0};
  return {number % 2 == 1 ? Transition::left : Transition::right, static_cast<std::int32_t>((number - 1) / 2)};
}

/// `gates` contains the inputs' contributions to the gates.
Parser::Values Parser::one_way(const Lstm& lstm, const Values& gates) const {
  const Index width = sizes_.hidden;
  Values result;
  std::optional<LazyExpr> h, c;
  for (const LazyExpr& from_input : gates) {
    const LazyExpr all = h ? from_input + matmul(*h, lstm.inner) : from_input;
    const auto gate = [&](Index k) { return slice(all, k * width, (k + 1) * width); };
    const LazyExpr taken = sigmoid(gate(0)) * tanh(gate(1));
    c = c ? sigmoid(gate(2) + lstm.forget_bias) * *c + taken : taken;
    h = sigmoid(gate(3)) * tanh(*c);
    result.push_back(*h);
  }
  return result;
}

Parser::Values Parser::both_ways(const Layer& layer, const Values& in) const {
  Values to_forward, to_backward;
  for (const LazyExpr& x : in) {
    to_forward.push_back(affine(x, layer.forward.in, layer.forward.bias));
    to_backward.push_back(affine(x, layer.backward.in, layer.backward.bias));
  }
  std::reverse(to_backward.begin(), to_backward.end());
  const Values forward = one_way(layer.forward, to_forward), backward = one_way(layer.backward, to_backward);
  Values result;
  for (std::size_t i = 0; i < in.size(); ++i) result.push_back(concat(forward[i], backward[in.size() - 1 - i]));
  return result;
}

Parser::Sentence Parser::read(LazyGraph& graph, std::span<const std::int32_t> words,
                              std::span<const std::int32_t> tags) const {
  Values x;
  for (std::size_t i = 0; i <= words.size(); ++i) {
    const bool root = i == words.size();
    const LazyIndex word = graph.index(root ? static_cast<std::int32_t>(sizes_.words) : words[i]);
    const LazyIndex tag = graph.index(root ? static_cast<std::int32_t>(sizes_.tags) : tags[i]);
    x.push_back(concat(embedding(words_, word), embedding(tags_, tag)));
  }
  for (const Layer& layer : layers_) x = both_ways(layer, x);
  std::rotate(x.begin(), x.end() - 1, x.end());  // the root
  const auto nothing = [&](std::int32_t place) { return embedding(nothing_, graph.index(place)); };
  Sentence sentence{.words = {}, .nothing = {nothing(0), nothing(1), nothing(2), nothing(3)}};
  for (const LazyExpr& word : x) {
    const LazyExpr all = matmul(word, seen_);
    const auto at = [&](Index place) { return slice(all, place * sizes_.scorer, (place + 1) * sizes_.scorer); };
    sentence.words.push_back({at(0), at(1), at(2), at(3)});
  }
  return sentence;
}

LazyExpr Parser::scores(const Sentence& sentence, const ArcHybrid& state) const {
  const auto seen = [&](std::int32_t word, std::size_t place) -> const LazyExpr& {
    return (word == ArcHybrid::none ? sentence.nothing : sentence.words[static_cast<std::size_t>(word)])[place];
  };
  const LazyExpr terms[] = {seen(state.stack(0), 0), seen(state.stack(1), 1), seen(state.stack(2), 2),
                            seen(state.next(), 3)};
  return affine(tanh(sum(terms) + scorer_bias_), out_, out_bias_);
}

}  // namespace windrow

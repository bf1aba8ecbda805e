#include "windrow/models/seq2seq.h"

#include <initializer_list>

namespace windrow {
namespace {

// With small embeddings, all annotations are alike at first, and attention takes long to be learned.
Parameter add_words(Parameters& parameters, const char* name, Index words, Index width) {
  return parameters.add(name, words, width, Initial::uniform(-1, 1));
}

}  // namespace

Seq2Seq::Seq2Seq(Parameters& parameters, Seq2SeqSizes sizes)
    : sizes_(sizes),
      source_words_(add_words(parameters, "source words", sizes.source, sizes.embedding)),
      target_words_(add_words(parameters, "target words", sizes.target, sizes.embedding)),
      forward_(parameters, "forward", {sizes.embedding, sizes.hidden}),
      backward_(parameters, "backward", {sizes.embedding, sizes.hidden}),
      decoder_(parameters, "decoder", {sizes.embedding, sizes.hidden}),
      attention_(parameters, "attention", {.query = sizes.hidden, .key = 2 * sizes.hidden, .hidden = sizes.hidden}),
      feed_(parameters.add_product("feed", sizes.hidden, 4 * sizes.hidden)),
      find_(parameters.add_product("find", 3 * sizes.hidden, sizes.hidden)),
      head_(parameters.add_product("head", sizes.hidden, sizes.target)),
      head_bias_(parameters.add("head_bias", 1, sizes.target, Initial::zeros())) {}

VertexFunction Seq2Seq::function() const {
  const auto kind_of = [this](const char* name, Kind kind) {
    return VertexFunction(name, shapes[kind], [this, kind](Vertex& v) { (*this)(v, kind); });
  };
  return VertexFunction("seq2seq", {kind_of("forward", forward), kind_of("backward", backward),
                                    kind_of("annotation", annotation), kind_of("step", step)});
}

GraphData Seq2Seq::graph(std::span<const std::int32_t> source, std::span<const std::int32_t> target) {
  GraphData data;
  auto &read = data.indices["source"], &previous = data.indices["previous"], &label = data.indices["label"];
  const auto add = [&](Kind kind, std::initializer_list<std::int32_t> children) {
    data.kinds.push_back(static_cast<std::int32_t>(kind));
    data.children.insert(data.children.end(), children);
    data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
    for (auto* index : {&read, &previous, &label}) index->push_back(-1);
  };
  const auto words = static_cast<std::int32_t>(source.size());
  for (std::int32_t i = 0; i < words; ++i) {
    add(forward, {i == 0 ? no_child : i - 1});
    read.back() = source[static_cast<std::size_t>(i)];
  }
  for (std::int32_t i = 0; i < words; ++i) {
    add(backward, {i + 1 == words ? no_child : words + i + 1});
    read.back() = source[static_cast<std::size_t>(i)];
  }
  for (std::int32_t i = 0; i < words; ++i) add(annotation, {i, words + i});
  for (std::size_t i = 0; i + 1 < target.size(); ++i) {
    data.children.push_back(i == 0 ? no_child : static_cast<std::int32_t>(data.kinds.size()) - 1);
    for (std::int32_t word = 0; word < words; ++word) data.children.push_back(2 * words + word);
    add(step, {});
    previous.back() = target[i];
    label.back() = target[i + 1];
  }
  return data;
}

double Seq2Seq::flops(std::int64_t source_words, std::int64_t steps) const {
  const auto h = static_cast<double>(sizes_.hidden), words = static_cast<double>(source_words);
  const auto all = static_cast<double>(steps);
  return forward_.flops(source_words) + backward_.flops(source_words) + decoder_.flops(steps) + 4 * h * h * words +
         8 * h * h * (all - 1) + 8 * h * h * all + 2 * h * words * all +
         2 * h * static_cast<double>(sizes_.target) * all;
}

}  // namespace windrow

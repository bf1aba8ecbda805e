#include "windrow/models/seq2seq.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "networks/cell_vertex.h"

namespace windrow {
namespace {

// With small embeddings, all annotations would be similar at first, and attention would be learned slowly.
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

namespace {

LazyCell direction(LazyGraph& graph, const Seq2Seq& model, Seq2Seq::Kind kind, const char* name) {
  const std::string hidden(name), cell = hidden + " cell";
  return graph.cell(name, [=, h = model.sizes().hidden](CellBody& body) {
    CellVertex v(body, {.gathered = {{hidden, h}, {cell, h}}, .indices = {"source"}});
    model.read(v, kind);
    v.results({hidden.c_str(), cell.c_str()});
  });
}

LazyCell annotation(LazyGraph& graph, const Seq2Seq& model) {
  return graph.cell("annotation", [model, h = model.sizes().hidden](CellBody& body) {
    CellVertex v(body, {.gathered = {{"forward", h}, {"backward", h}}});
    model.annotate(v);
    v.results({"key", "annotation"});
  });
}

LazyCell decoder_step(LazyGraph& graph, const Seq2Seq& model) {
  return graph.cell("step", [model, h = model.sizes().hidden](CellBody& body) {
    CellVertex v(body, {.gathered = {{"decoder", h}, {"decoder cell", h}, {"found", h}},
                        .each = {{"key", h}, {"annotation", 2 * h}},
                        .indices = {"previous"}});
    const Expr logits = model.logits(v);
    v.results({"decoder", "decoder cell", "found"});
    body.result(log_softmax(logits));
  });
}

}  // namespace

Translator::Translator(const Device& device, Parameters& parameters, const Seq2Seq& model, const RunnerOptions& options)
    : model_(model.without_dropout()),
      graph_(device, parameters, {.use = LazyOptions::For::inference, .runner = options}),
      forward_(direction(graph_, model_, Seq2Seq::forward, "forward")),
      backward_(direction(graph_, model_, Seq2Seq::backward, "backward")),
      annotate_(annotation(graph_, model_)),
      step_(decoder_step(graph_, model_)) {}

std::vector<LazyExpr> Translator::read_one_way(const LazyCell& cell, Words sentence) {
  std::vector<LazyExpr> states;
  LazyExpr hidden, memory;
  for (const std::int32_t word : sentence) {
    auto [next, next_memory] = cell.call<2>({hidden, memory}, {graph_.index(word)});
    hidden = std::move(next);
    memory = std::move(next_memory);
    states.push_back(hidden);
  }
  return states;
}

std::vector<LazyExpr> Translator::read(Words sentence) {
  const std::vector<LazyExpr> forward = read_one_way(forward_, sentence);
  const std::vector<std::int32_t> reversed(sentence.rbegin(), sentence.rend());
  const std::vector<LazyExpr> backward = read_one_way(backward_, reversed);
  std::vector<LazyExpr> annotations;
  for (std::size_t i = 0; i < sentence.size(); ++i) {
    auto [key, both] = annotate_.call<2>({forward[i], backward[sentence.size() - 1 - i]});
    annotations.push_back(std::move(key));
    annotations.push_back(std::move(both));
  }
  return annotations;
}

std::pair<Translator::State, LazyExpr> Translator::step(const State& before, std::int32_t word,
                                                        std::span<const LazyExpr> annotations) {
  auto [hidden, cell, found, scores] =
      step_.call<4>({before.hidden, before.cell, before.found}, {graph_.index(word)}, annotations);
  return {State{std::move(hidden), std::move(cell), std::move(found)}, std::move(scores)};
}

LazyTask<std::vector<Hypothesis>> Translator::search(Words sentence, BeamSearchOptions options) {
  options.longest = std::min(options.longest, 2 * sentence.size() + 10);
  const std::vector<LazyExpr> annotations = read(sentence);
  const auto next = [&](const State& before, std::int32_t word) { return step(before, word, annotations); };
  co_return co_await beam_search(State{}, next, options);
}

std::vector<std::vector<Hypothesis>> Translator::translate(std::span<const std::vector<std::int32_t>> sentences,
                                                           BeamSearchOptions options) {
  graph_.clear();  // removes what a failed call may have left
  std::vector<LazyTask<std::vector<Hypothesis>>> tasks;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    if (sentences[i].empty()) {
      throw MisuseError("translator: sentence " + std::to_string(i + 1) + " has no words; expected at least one");
    }
    tasks.push_back(search(sentences[i], options));
  }
  std::vector<std::vector<Hypothesis>> found = run(graph_, std::move(tasks));
  graph_.clear();
  return found;
}

}  // namespace windrow

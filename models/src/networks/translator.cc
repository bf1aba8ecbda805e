#include "windrow/models/translator.h"

#include <algorithm>
#include <string>

#include "networks/cell_vertex.h"

namespace windrow {
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
  graph_.clear();  // what a failure may have left
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

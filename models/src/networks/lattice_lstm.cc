// The lattice LSTM, and made-up text as its workload: finds where words begin and end.
#include "windrow/models/internal/lattice_lstm.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "data/draws.h"
#include "training/scores.h"
#include "training/splits.h"

namespace windrow {

LatticeLstm::LatticeLstm(Parameters& parameters, LatticeLstmSizes sizes)
    : sizes_(sizes),
      characters_(parameters.add("characters", sizes.characters, sizes.embedding, Initial::uniform(-0.1f, 0.1f))),
      words_(parameters.add("words", sizes.words, sizes.embedding, Initial::uniform(-0.1f, 0.1f))),
      in_(parameters.add_product("in", sizes.embedding, 3 * sizes.hidden)),
      recurrent_(parameters.add_product("recurrent", sizes.hidden, 3 * sizes.hidden)),
      bias_(parameters.add("bias", 1, 3 * sizes.hidden, Initial::zeros())),
      word_in_(parameters.add_product("word_in", sizes.embedding, 3 * sizes.hidden)),
      word_recurrent_(parameters.add_product("word_recurrent", sizes.hidden, 3 * sizes.hidden)),
      word_bias_(parameters.add("word_bias", 1, 3 * sizes.hidden, Initial::zeros())),
      gate_in_(parameters.add_product("gate_in", sizes.embedding, sizes.hidden)),
      gate_(parameters.add_product("gate", sizes.hidden, sizes.hidden)),
      gate_bias_(parameters.add("gate_bias", 1, sizes.hidden, Initial::zeros())),
      head_(parameters.add_product("head", sizes.hidden, sizes.tags)),
      head_bias_(parameters.add("head_bias", 1, sizes.tags, Initial::zeros())) {}

VertexFunction LatticeLstm::function() const {
  const VertexFunction::Shape of_character{.arity = any_arity, .fixed = 1};
  return VertexFunction("lattice_lstm", {{"character", of_character, [&](Vertex& v) { compute_character(v); }},
                                         {"word", {.arity = 1}, [&](Vertex& v) { compute_word(v); }}});
}

void LatticeLstm::compute_character(Vertex& v) const {
  const Index h = sizes_.hidden;
  const State h_of = v.state("h", h), c_of = v.state("c", h), word_of = v.state("word", h);
  const Expr x = embedding(characters_, v.pull_index("symbol"));
  const Expr gates = matmul(x, in_) + matmul(v.gather(0, h_of), recurrent_) + bias_;
  const Expr in = sigmoid(slice(gates, 0, h)), out = sigmoid(slice(gates, h, 2 * h));
  // The new value is the mean of the character's own candidate and of the cells of words that end here, weighted by
  // gates.
  const Expr of_word = v.each(word_of), own = exp(in);
  const Expr share = exp(sigmoid(to_children(matmul(x, gate_in_)) + matmul(of_word, gate_) + gate_bias_));
  const Expr sum = own * tanh(slice(gates, 2 * h, 3 * h)) + sum_children(share * of_word);
  const Expr before = v.gather(0, c_of);
  const Expr c = before + in * (sum / (own + sum_children(share)) - before);
  const Expr hidden = out * tanh(c);
  v.scatter(h_of, hidden);
  v.scatter(c_of, c);
  const Expr logits = matmul(hidden, head_) + head_bias_;
  v.push("logits", logits);
  v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
}

void LatticeLstm::compute_word(Vertex& v) const {
  const Index h = sizes_.hidden;
  const State h_of = v.state("h", h), c_of = v.state("c", h), word_of = v.state("word", h);
  const Expr x = embedding(words_, v.pull_index("symbol"));
  const Expr gates = matmul(x, word_in_) + matmul(v.gather(0, h_of), word_recurrent_) + word_bias_;
  const Expr in = sigmoid(slice(gates, 0, h)), keep = sigmoid(slice(gates, h, 2 * h));
  v.scatter(word_of, keep * v.gather(0, c_of) + in * tanh(slice(gates, 2 * h, 3 * h)));
}

GraphData LatticeLstm::graph(const std::vector<std::int32_t>& characters, const std::vector<Found>& words,
                             const std::vector<std::int32_t>& labels) {
  const auto length = static_cast<std::int32_t>(characters.size());
  GraphData data{.indices = {{"symbol", characters}, {"label", labels}}};
  const auto end_vertex = [&](std::int32_t kind) {
    data.kinds.push_back(kind);
    data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
  };
  for (std::int32_t at = 0; at < length; ++at) {
    data.children.push_back(at == 0 ? no_child : at - 1);
    for (std::size_t w = 0; w < words.size(); ++w) {
      if (words[w].last == at) data.children.push_back(length + static_cast<std::int32_t>(w));
    }
    end_vertex(character);
  }
  for (const Found& found : words) {
    data.children.push_back(found.first);
    data.indices["symbol"].push_back(found.number);
    end_vertex(word);
  }
  data.indices["label"].resize(data.kinds.size(), -1);
  return data;
}

double LatticeLstm::flops(const GraphData& graph) const {
  const auto h = static_cast<double>(sizes_.hidden), e = static_cast<double>(sizes_.embedding);
  const auto words = static_cast<double>(std::ranges::count(graph.kinds, word));
  const double characters = static_cast<double>(graph.kinds.size()) - words;
  double with_words = 0;
  for (std::size_t v = 0; v < graph.kinds.size(); ++v) {
    with_words += graph.kinds[v] == character && graph.child_begin[v + 1] - graph.child_begin[v] > 1 ? 1 : 0;
  }
  return (6 * h * e + 2 * h * static_cast<double>(sizes_.tags)) * characters + 6 * h * h * (characters - 1) +
         2 * h * e * with_words + (6 * h * e + 8 * h * h) * words;
}

namespace {

constexpr int alphabet = 200, lexicon_words = 2000, longest_word = 4;
/// Labels: the place of a character in its word.
constexpr std::int32_t first_of_word = 0, inside_word = 1, last_of_word = 2, alone = 3, lattice_tags = 4;

using Characters = std::vector<std::int32_t>;

/// Words of two to four characters. The same in each program.
struct Lexicon {
  std::vector<Characters> words;
  std::map<Characters, std::int32_t> numbers;

  Lexicon() {
    constexpr std::array lengths = {70, 20, 10};  // of two, three and four characters
    Draws draws(0);
    while (words.size() < lexicon_words) {
      Characters word(2 + draws.among(lengths));
      for (std::int32_t& one : word) one = draws.below(alphabet);
      if (numbers.emplace(word, static_cast<std::int32_t>(words.size())).second) words.push_back(word);
    }
  }
};

/// Words and single characters take turns at random. The lattice has all words that happen to occur.
GraphData draw_sentence(const Lexicon& lexicon, const Zipf& ranks, Draws& draws) {
  Characters text, labels;
  for (const int length = 15 + draws.below(36); std::ssize(text) < length;) {
    if (draws.chance(0.5)) {
      text.push_back(draws.below(alphabet));
      labels.push_back(alone);
      continue;
    }
    const Characters& word = lexicon.words[static_cast<std::size_t>(ranks.rank(draws.share()))];
    text.insert(text.end(), word.begin(), word.end());
    labels.push_back(first_of_word);
    labels.resize(text.size() - 1, inside_word);
    labels.push_back(last_of_word);
  }
  std::vector<LatticeLstm::Found> found;
  for (auto first = text.begin(); first != text.end(); ++first) {
    for (int length = 2; length <= std::min<std::ptrdiff_t>(longest_word, text.end() - first); ++length) {
      const auto known = lexicon.numbers.find(Characters(first, first + length));
      const auto at = static_cast<std::int32_t>(first - text.begin());
      if (known != lexicon.numbers.end()) found.push_back({known->second, at, at + length - 1});
    }
  }
  return LatticeLstm::graph(text, found, labels);
}

Workload make_lattice(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  GraphWorkload made(kind, device, options,
                     "6 h e + 8 h per character, 6 h^2 per character but the first, 2 h e per character where words "
                     "end, 6 h e + 8 h^2 per word");
  const LatticeLstm model(made.parameters(),
                          {alphabet, lexicon_words, options.size("embedding"), options.size("hidden"), lattice_tags});
  made.set_network(model.function(), [] { return make_accuracy(0); });
  const Lexicon lexicon;
  const Zipf ranks(lexicon_words, 1.8);
  Split<GraphData> sentences = generate_split(options, [&](std::size_t count, std::uint64_t seed, const char*) {
    Draws draws(seed);
    std::vector<GraphData> drawn;
    while (drawn.size() < count) drawn.push_back(draw_sentence(lexicon, ranks, draws));
    return drawn;
  });
  return with_samples(std::move(made), std::move(sentences), [&](const GraphData& sentence) {
    return Draft{sentence, 1, model.flops(sentence)};
  });
}

}  // namespace

WorkloadKind lattice_lstm_kind() {
  return {.name = "lattice-lstm",
          .about = "lattice LSTM, finds the words of made-up text without spaces (Zhang and Yang 2018)",
          .sample = "sentence",
          .unit = "sentences",
          .files = {},
          .sizes = {hidden(128), embedding(128)},
          .cells = {},
          .samples = 2048,
          .learning_rate = 0.1,
          .make = make_lattice};
}

}  // namespace windrow

// The transition parser: what it learns, how its sentences batch, and that each is parsed as if it were alone. The
// arc-hybrid system against all trees of few words, and all ways to build trees.
#include "tests/models/training.h"
#include "windrow/models/dependency_parser.h"

namespace windrow::testing {
namespace {

std::vector<DependencySentence> sentences_of_parser(std::size_t sentences, std::uint64_t seed) {
  std::istringstream text(generate_conllu(sentences, seed));
  return read_conllu(text, "generated");
}

/// A parser that knows so many generated sentences, at a size for tests.
struct Small : OnHost {
  explicit Small(std::size_t sentences, std::uint64_t seed = 1) : treebank(sentences_of_parser(sentences, seed)) {}

  std::vector<DependencySentence> treebank;
  DependencyParser parser{parameters, treebank, {.word = 16, .tag = 8, .hidden = 16, .scorer = 16}};
};

TEST(DependencyParser, FindsTheSameTreesWhateverTheBatch) {
  Small small(30);
  LazyGraph graph(small.host, small.parameters, {.use = LazyOptions::For::inference});
  const std::vector<DependencyTree> together = small.parser.parse(graph, small.treebank);
  for (std::size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(small.parser.parse(graph, {small.treebank[i]})[0].heads, together[i].heads) << i;
  }
}

/// As many flushes as the longest sentence has steps, and no way of computing that is found later than the others.
TEST(DependencyParser, ComputesASentencesStepsWithThoseOfTheOthers) {
  Small small(64, 5);
  std::vector<DependencyParser::Sentence> sentences;
  std::size_t longest = 0;
  for (const DependencySentence& sentence : small.treebank) {
    sentences.push_back(small.parser.numbered(sentence));
    longest = std::max(longest, sentence.heads.size());
  }
  LazyGraph graph(small.host, small.parameters);
  std::int64_t flushes = 0;
  std::vector<std::int64_t> kinds;
  for (std::uint64_t pass = 0; pass < 12; ++pass) {
    std::vector<LazyTask<DependencyParser::Learned>> tasks;
    for (const auto& sentence : sentences) tasks.push_back(small.parser.learn(graph, sentence, pass));
    std::vector<LazyExpr> losses;
    for (const auto& learned : run(graph, std::move(tasks))) {
      losses.insert(losses.end(), learned.losses.begin(), learned.losses.end());
    }
    graph.backward(losses);
    small.parameters.sgd(0.02 / 64);
    graph.clear();
    EXPECT_LE(graph.stats().flushes - flushes, static_cast<std::int64_t>(2 * longest));
    flushes = graph.stats().flushes;
    kinds.push_back(graph.stats().kinds);
  }
  EXPECT_LE(kinds.front(), 20);
  EXPECT_EQ(kinds.back(), kinds[1]);
  EXPECT_LT(graph.stats().runner.batches, graph.stats().expressions / 20);
  EXPECT_LE(graph.stats().runner.minibatches, flushes + 12);  // gradients of all steps at once
}

TEST(DependencyParser, ParsesWhatHasNoWordsOrUnknownOnes) {
  Small small(5);
  LazyGraph graph(small.host, small.parameters, {.use = LazyOptions::For::inference});
  const auto trees = small.parser.parse(graph, {{}, {.forms = {"?"}, .tags = {"?"}, .heads = {0}, .relations = {"?"}}});
  EXPECT_TRUE(trees[0].heads.empty());
  EXPECT_EQ(trees[1].heads, std::vector<std::int32_t>{0});
  EXPECT_NE(trees[1].relations[0], "?");
}

/// Whatever the scores are: those of an untrained parser, of several seeds, and after some training with wrong
/// relations.
TEST(DependencyParser, GivesTheRelationRootIfAndOnlyIfTheHeadIsTheRoot) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Small small(60, seed);
    LazyGraph graph(small.host, small.parameters, {.use = LazyOptions::For::inference});
    for (const DependencyTree& tree : small.parser.parse(graph, sentences_of_parser(60, seed + 10))) {
      EXPECT_EQ(std::ranges::count(tree.heads, 0), 1) << seed;
      for (std::size_t i = 0; i < tree.heads.size(); ++i) {
        EXPECT_EQ(tree.heads[i] == 0, tree.relations[i] == "root") << "seed " << seed << ", word " << i + 1;
      }
    }
  }
}

/// Words whose relations do not fit their heads, as in other schemes, do not stop the training.
TEST(DependencyParser, LearnsFromTreebanksWithoutARootsOwnRelation) {
  for (const auto& [of_root, of_others] :
       {std::pair("ROOT", "dep"), {"dep", "root"}, {"root", "root"}, {"root:x", "dep"}}) {
    OnHost s;
    const std::vector<DependencySentence> treebank = {{.forms = {"a", "b", "c"},
                                                       .tags = {"X", "Y", "X"},
                                                       .heads = {2, 0, 2},
                                                       .relations = {of_others, of_root, of_others}}};
    const DependencyParser parser(s.parameters, treebank, {.word = 4, .tag = 4, .hidden = 4, .scorer = 4});
    const DependencyParser::Sentence sentence = parser.numbered(treebank[0]);
    LazyGraph graph(s.host, s.parameters);
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      std::vector<LazyTask<DependencyParser::Learned>> tasks;
      tasks.push_back(parser.learn(graph, sentence, seed));
      const DependencyParser::Learned learned = std::move(run(graph, std::move(tasks)).front());
      EXPECT_TRUE(std::isfinite(learned.loss)) << of_root;
      if (!learned.losses.empty()) graph.backward(learned.losses), s.parameters.sgd(0.1);
      graph.clear();
    }
    const DependencyTree tree = parser.parse(graph, treebank).front();
    EXPECT_EQ(std::ranges::count(tree.heads, 0), 1);
    if (std::string_view(of_root) != "root:x") continue;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(tree.heads[i] == 0, tree.relations[i] == of_root);
  }
}

const std::map<std::string, Index> small_sizes = {{"hidden", 16}, {"embedding", 16}, {"tag-embedding", 8}};

TEST(ParserWorkload, TrainsOnProjectiveSentencesAndValidatesOnAll) {
  const std::string straight = "1\ta\t_\tX\t_\t_\t0\troot\t_\t_\n\n";
  std::string crossed;  // 1 <- 3 and 2 <- 4 cross
  for (const char* line :
       {"1\ta\t_\tX\t_\t_\t3", "2\tb\t_\tX\t_\t_\t4", "3\tc\t_\tX\t_\t_\t0", "4\td\t_\tX\t_\t_\t3"}) {
    crossed += line + std::string("\tdep\t_\t_\n");
  }
  crossed += "\n";
  const TextFolder folder({{"train.conllu", straight + crossed + straight}, {"dev.conllu", crossed}});
  const HostWorkload made("parser", {.data = folder.path.string(), .sizes = small_sizes});
  const Workload& workload = made.workload;
  EXPECT_EQ(workload.training.size(), 2u);
  ASSERT_EQ(workload.validation.size(), 1u);
  EXPECT_EQ(workload.validation[0].labels, 4);
  ASSERT_EQ(workload.training_source.left_out.size(), 1u);
  EXPECT_EQ(workload.training_source.left_out[0].samples, 1u);
  EXPECT_EQ(workload.training_source.left_out[0].why, "not projective");
  EXPECT_TRUE(workload.validation_source.left_out.empty());
  const TextFolder none({{"train.conllu", crossed}, {"dev.conllu", crossed}});
  EXPECT_EQ(error_of<DataError>([&] { HostWorkload("parser", {.data = none.path.string()}); }),
            (none.path / "train.conllu").string() + ": 0 of 1 training sentences are projective; expected at least 1");
}

TEST(ParserWorkload, HasNoGraphsInAdvance) {
  const HostWorkload made("parser", {.samples = 1, .sizes = small_sizes});
  EXPECT_EQ(
      error_of<MisuseError>([&] { made.workload.network->typed_graphs(8); }),
      "this model's graphs are not known before it runs; expected one of tree-lstm, tree-fc, fixed-lstm, var-lstm, "
      "bilstm, bilstm-char, listops, dag, lattice-lstm, seq2seq");
}

TEST(Parser, NumbersItsActions) {
  EXPECT_EQ(Parser::action(0), (ParserAction{Transition::shift, 0}));
  EXPECT_EQ(Parser::action(2), (ParserAction{Transition::right, 0}));
  EXPECT_EQ(Parser::action(3), (ParserAction{Transition::left, 1}));
}

using Heads = std::vector<std::int32_t>;

/// One root, to which the heads of all words lead.
bool is_tree(const Heads& heads) {
  if (std::count(heads.begin(), heads.end(), 0) != 1) return false;
  for (std::int32_t word : heads) {
    for (std::size_t steps = 0; word != 0; word = heads[static_cast<std::size_t>(word) - 1]) {
      if (++steps > heads.size()) return false;
    }
  }
  return true;
}

bool projective_tree(const Heads& heads) {
  return is_tree(heads) && projective({.forms = {}, .tags = {}, .heads = heads});
}

/// Calls `visit` with each projective tree of so many words.
void each_tree(std::int32_t words, const std::function<void(const Heads&)>& visit) {
  Heads heads(static_cast<std::size_t>(words), 0);
  while (true) {
    if (projective_tree(heads)) visit(heads);
    auto digit = heads.begin();
    while (digit != heads.end() && *digit == words) *digit++ = 0;
    if (digit == heads.end()) return;
    ++*digit;
  }
}

/// The most arcs that can be right in the end, found by trying everything; checks what each step costs on the way.
int most_right(const ArcHybrid& state, const Heads& gold) {
  if (state.final()) {
    int right = 0;
    for (std::size_t i = 0; i < gold.size(); ++i) right += state.heads()[i] == gold[i];
    return right;
  }
  int most = 0, after[3] = {-1, -1, -1};
  for (const Transition transition : all_transitions) {
    if (!state.legal(transition)) continue;
    ArcHybrid next = state;
    next.apply(transition);
    const int right = most_right(next, gold);
    after[static_cast<std::size_t>(transition)] = right;
    most = std::max(most, right);
  }
  for (const Transition transition : all_transitions) {
    const int right = after[static_cast<std::size_t>(transition)];
    if (right >= 0) {
      EXPECT_EQ(state.cost(transition, gold), most - right);
    }
  }
  return most;
}

TEST(Transitions, CostTheArcsThatCanNoLongerBeHad) {
  const int known[] = {1, 2, 7, 30, 143};
  for (std::int32_t words = 1; words <= 5; ++words) {
    int trees = 0;
    each_tree(words, [&](const Heads& gold) {
      ++trees;
      if (::testing::Test::HasFailure()) return;
      EXPECT_EQ(most_right(ArcHybrid(words), gold), words);
    });
    EXPECT_EQ(trees, known[words - 1]);
  }
}

TEST(Transitions, BuildAProjectiveTreeWhateverIsChosen) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto words = static_cast<std::int32_t>(1 + random() % 12);
    ArcHybrid state(words);
    for (std::int32_t step = 0; step < 2 * words; ++step) {
      ASSERT_FALSE(state.final());
      Transition transition{};
      do transition = all_transitions[random() % 3];
      while (!state.legal(transition));
      state.apply(transition);
    }
    ASSERT_TRUE(state.final());
    ASSERT_TRUE(projective_tree(state.heads()));
  }
}

}  // namespace
}  // namespace windrow::testing

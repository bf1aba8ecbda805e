// Generated data: they are the same for the same seed, have the statistics that datasets.h states, and can be read.
// Images in IDX files: what is read, what is refused; and generated digits.
#include <array>
#include <functional>

#include "tests/mix.h"
#include "tests/models/data.h"
#include "tests/seed.h"
#include "windrow/models/internal/parallel_text.h"

namespace windrow::testing {
namespace {

struct GeneratedData {
  const char* name;
  std::function<std::string(std::size_t samples, std::uint64_t seed)> generate;
  std::uint64_t digest;  ///< of 4000 samples with seed 1
};

TEST(GeneratedData, IsTheSameForTheSameSeed) {
  const auto both_sides = [](std::size_t samples, std::uint64_t seed) {
    const ParallelText text = generate_parallel_text(samples, seed);
    return text.source + text.target;
  };
  const auto images = [](std::size_t samples, std::uint64_t seed) {
    const LabelledImages made = generate_digits(samples, seed);
    return std::string(made.pixels.begin(), made.pixels.end()) + std::string(made.labels.begin(), made.labels.end());
  };
  const auto lists = [](std::size_t samples, std::uint64_t seed) { return generate_listops(samples, seed); };
  for (const auto& [name, generate, digest] : {GeneratedData{"treebank", generate_treebank, 0x0765e6621c5ff7f1u},
                                               {"conllu", generate_conllu, 0x59fedc5d83e9431fu},
                                               {"sentences", generate_sentences, 0x95c33c219cfdb845u},
                                               {"tagged sentences", generate_tagged_sentences, 0xe368c25c18d02c85u},
                                               {"parallel text", both_sides, 0xe36d2ab6a7a82cc6u},
                                               {"listops", lists, 0xa401b0f07d312d5fu},
                                               {"digits", images, 0x15d7c1225cc2e28du}}) {
    EXPECT_EQ(testing::digest(generate(4000, 1)), digest) << name;
    EXPECT_EQ(generate(20, 7), generate(20, 7)) << name;
    EXPECT_NE(generate(20, 7), generate(20, 8)) << name;
  }
}

double share(std::size_t part, std::size_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

/// For each vertex, how many vertices there are from it to the farthest leaf.
std::vector<std::size_t> depths_of(const GraphData& graph) {
  std::vector<std::size_t> depths;
  for (std::size_t v = 0; v + 1 < graph.child_begin.size(); ++v) {
    std::size_t depth = 1;
    for (auto e = graph.child_begin[v]; e < graph.child_begin[v + 1]; ++e) {
      depth = std::max(depth, 1 + depths[static_cast<std::size_t>(graph.children[static_cast<std::size_t>(e)])]);
    }
    depths.push_back(depth);
  }
  return depths;
}

/// The figures that are known of the Stanford treebank's training part, in minibatches of 256 trees.
TEST(GeneratedTreebank, FollowsTheShapeOfTheStanfordTreebank) {
  std::size_t vertices = 0, leaves = 0, minibatches = 0, levels = 0, narrow = 0, trees = 0;
  std::map<std::size_t, int> widths;
  for (const LabelledTree& tree : parsed(read_treebank, generate_treebank(8544, 1))) {
    for (const std::size_t depth : depths_of(tree.graph)) ++vertices, ++widths[depth], leaves += depth == 1;
    if (++trees % 256 != 0) continue;
    ++minibatches;
    levels += widths.size();
    for (const auto& [level, count] : widths) narrow += count <= 8;
    widths.clear();
  }
  EXPECT_NEAR(share(vertices, trees), 37.3, 1);
  EXPECT_NEAR(share(leaves, vertices), 0.513, 0.002);
  EXPECT_NEAR(share(levels, minibatches), 24, 1.5);
  EXPECT_NEAR(share(narrow, levels), 0.23, 0.03);
}

TEST(GeneratedConllu, IsProjectiveAndAsLongAsStatedWithEnhancedDependenciesWithoutCircles) {
  std::size_t words = 0, longest = 0, shared = 0;
  const auto sentences = parsed(read_conllu, generate_conllu(4000, 4));
  for (const DependencySentence& sentence : sentences) {
    words += sentence.heads.size();
    longest = std::max(longest, sentence.heads.size());
    EXPECT_TRUE(projective(sentence));
    std::size_t arcs = 0;
    for (std::size_t word = 0; word < sentence.heads.size(); ++word) {
      const std::vector<Arc>& heads = sentence.enhanced[word];
      shared += heads.size() > 1;
      arcs += heads.size() - static_cast<std::size_t>(std::ranges::count(heads, 0, &Arc::head));
      EXPECT_TRUE(std::ranges::any_of(heads, [&](const Arc& arc) {
        return arc.head == sentence.heads[word] && arc.relation.starts_with(sentence.relations[word]);
      })) << sentence.forms[word];
    }
    EXPECT_EQ(enhanced_graph(sentence).children.size(), arcs);
  }
  EXPECT_EQ(sentences.size(), 4000u);
  EXPECT_NEAR(share(words, 4000), 12.2, 0.5);
  EXPECT_GT(longest, 40u);
  EXPECT_NEAR(share(shared, words), 0.05, 0.01);
}

using Counts = std::map<std::string, std::size_t>;

TEST(GeneratedSentences, FollowTheStatisticsOfThePennTreebank) {
  Counts counts;
  std::size_t words = 0, longest = 0, frequent = 0;
  const std::vector<Sentence> sentences = parsed(read_sentences, generate_sentences(7131, 1));
  for (const Sentence& sentence : sentences) {
    for (const std::string& word : sentence) ++counts[word], ++words;
    longest = std::max(longest, sentence.size());
  }
  std::vector<std::size_t> descending;
  for (const auto& [word, count] : counts) descending.push_back(count);
  std::ranges::sort(descending, std::greater<>());
  for (std::size_t i = 0; i < 100; ++i) frequent += descending.at(i);
  EXPECT_EQ(sentences.size(), 7131u);
  EXPECT_NEAR(share(words, 7131), 20.9, 0.5);
  EXPECT_LE(longest, 75u);
  EXPECT_NEAR(share(descending[0], words), 0.06, 0.01);
  EXPECT_NEAR(share(frequent, words), 0.54, 0.03);
  EXPECT_NEAR(share(counts["<unk>"], words), 0.05, 0.02);
  EXPECT_NEAR(share(counts["N"], words), 0.04, 0.02);
}

TEST(GeneratedTaggedSentences, FollowTheStatisticsOfWikiNer) {
  Counts tags, names;
  std::size_t words = 0;
  for (const TaggedSentence& sentence : parsed(read_tagged_sentences, generate_tagged_sentences(1696, 1))) {
    for (std::size_t i = 0; i < sentence.tags.size(); ++i) {
      ++words, ++tags[sentence.tags[i]];
      if (sentence.tags[i] != "O") ++names[sentence.words[i]];
    }
  }
  EXPECT_EQ(tags.size(), 5u);
  EXPECT_NEAR(share(words, 1696), 23, 1);
  EXPECT_NEAR(share(tags["O"], words), 0.835, 0.02);
  EXPECT_NEAR(share(tags["I-ORG"], words), 0.050, 0.01);
  EXPECT_NEAR(share(tags["I-PER"], words), 0.042, 0.01);
  EXPECT_NEAR(share(tags["I-LOC"], words), 0.037, 0.01);
  EXPECT_NEAR(share(tags["I-MISC"], words), 0.036, 0.01);
  EXPECT_GT(2 * std::ranges::count(names, 1u, &Counts::value_type::second), std::ssize(names))
      << "names that occur once";
}

TEST(GeneratedParallelText, IsAsLongAsStatedWithFewWordsThatAreNotInAnotherText) {
  const auto pairs_of = [](std::size_t sentences, std::uint64_t seed) {
    const ParallelText text = generate_parallel_text(sentences, seed);
    std::istringstream source(text.source), target(text.target);
    return read_parallel_text(NamedText{source, "source"}, NamedText{target, "target"});
  };
  const std::vector<SentencePair> others = pairs_of(4096, 2);
  const SentenceVocabulary source(source_vocabulary(others)), target(target_vocabulary(others));
  std::size_t unknown = 0, all = 0;
  for (const SentencePair& pair : pairs_of(512, 3)) {
    EXPECT_EQ(pair.source.size(), pair.target.size());
    EXPECT_LE(pair.source.size(), 48u);
    for (const std::int32_t number : source.numbers(pair.source)) unknown += number == 0, ++all;
    for (const std::int32_t number : target.numbers(pair.target)) unknown += number == 0, ++all;
  }
  EXPECT_LT(share(unknown, all), 0.005);
  EXPECT_NEAR(share(all, 2 * 512), 15, 1);
}

TEST(GeneratedDigits, AreEquallyFrequent) {
  const LabelledImages images = generate_digits(4000, 1);
  ASSERT_EQ(images.pixels.size(), 4000u * 28 * 28);
  for (std::uint8_t label = 0; label < 10; ++label) EXPECT_NEAR(std::ranges::count(images.labels, label), 400, 100);
}

/// The figures of the 10,000 trees for testing that were published.
TEST(GeneratedListOps, FollowsThePublishedData) {
  constexpr std::size_t trees = 100'000;
  std::size_t vertices = 0, flat = 0, deepest = 0;
  std::map<std::int32_t, std::size_t> arguments, symbols;
  for (const ListOpsTree& tree : parsed(read_listops, generate_listops(trees, 1))) {
    const GraphData& graph = tree.graph;
    const std::size_t depth = depths_of(graph).back();
    flat += depth == 2;
    deepest += depth == 20;
    ASSERT_LE(depth, 20u);
    for (const std::int32_t symbol : graph.indices.at("symbol")) ++symbols[symbol], ++vertices;
    for (std::size_t v = 1; v < graph.child_begin.size(); ++v) {
      ++arguments[graph.child_begin[v] - graph.child_begin[v - 1]];
    }
  }
  EXPECT_NEAR(share(vertices, trees), 33.6, 1);
  EXPECT_NEAR(share(flat, trees), 0.209, 0.01);
  EXPECT_NEAR(share(deepest, trees), 0.032, 0.004);
  const std::size_t lists = vertices - arguments[0];
  EXPECT_EQ(arguments.size(), 5u);  // with digits, which have none
  EXPECT_NEAR(share(arguments[2], lists), 0.236, 0.01);
  EXPECT_NEAR(share(arguments[5], lists), 0.261, 0.01);
  EXPECT_EQ(symbols.size(), static_cast<std::size_t>(listops_symbols));
  for (std::int32_t symbol = 10; symbol < listops_symbols; ++symbol) {
    EXPECT_NEAR(share(symbols[symbol], lists), 0.25, 0.01);
  }
}

TEST(GeneratedListOps, HasNoTreeTwiceButWhereThereAreFew) {
  const auto distinct = [](const std::string& text) {
    std::istringstream lines(text);
    std::set<std::string> result;
    for (std::string line; std::getline(lines, line);) result.insert(line);
    return result.size();
  };
  EXPECT_EQ(distinct(generate_listops(20000, 3)), 20000u);
  // There are 4 operators on two digits.
  EXPECT_EQ(distinct(generate_listops(4000, 3, {.max_arguments = 2, .max_depth = 2})), 400u);
}

TEST(GeneratedListOps, KeepsToItsShape) {
  std::size_t deepest = 0;
  int longest = 0;
  for (const ListOpsTree& tree :
       parsed(read_listops, generate_listops(2000, 4, {.max_arguments = 8, .max_depth = 4}))) {
    deepest = std::max(deepest, depths_of(tree.graph).back());
    const std::vector<std::int32_t>& begins = tree.graph.child_begin;
    for (std::size_t v = 1; v < begins.size(); ++v) longest = std::max(longest, begins[v] - begins[v - 1]);
  }
  EXPECT_EQ(deepest, 4u);
  EXPECT_EQ(longest, 8);
  for (const auto& [shape, says] :
       {std::pair<ListOpsShape, std::string>{{.max_arguments = 1}, "arguments 1; expected 2 to 10"},
        {{.max_arguments = 11}, "arguments 11; expected 2 to 10"},
        {{.max_depth = 1}, "depth 1; expected 2 to 20"},
        {{.max_depth = 21}, "depth 21; expected 2 to 20"}}) {
    EXPECT_EQ(error_of<MisuseError>([&, &of = shape] { generate_listops(1, 1, of); }), "generate_listops: max_" + says);
  }
}

struct IdxFiles {
  std::string images, labels;

  LabelledImages read() const {
    std::istringstream from(images), of(labels);
    return read_idx(NamedBytes{from, "images"}, NamedBytes{of, "labels"});
  }
};

/// Three images of 2 x 3 pixels.
IdxFiles three_images() {
  LabelledImages images{.height = 2, .width = 3, .labels = {7, 0, 9}};
  for (int i = 0; i < 18; ++i) images.pixels.push_back(static_cast<std::uint8_t>(14 * i));
  std::ostringstream of_images, of_labels;
  write_idx(images, of_images, of_labels);
  return {of_images.str(), of_labels.str()};
}

TEST(Images, AreReadAsTheyWereWritten) {
  const LabelledImages images = three_images().read();
  EXPECT_EQ(images.height, 2);
  EXPECT_EQ(images.width, 3);
  EXPECT_EQ(images.labels, (std::vector<std::uint8_t>{7, 0, 9}));
  EXPECT_EQ(images.image(2)[5], 14 * 17);
  // The header of the published format, byte by byte.
  EXPECT_EQ(three_images().images.substr(0, 16), std::string("\0\0\10\3\0\0\0\3\0\0\0\2\0\0\0\3", 16));
  EXPECT_EQ(three_images().labels, std::string("\0\0\10\1\0\0\0\3\7\0\11", 11));
}

TEST(Images, RefuseFilesThatAreNotInTheFormat) {
  const auto error = [](const std::function<void(IdxFiles&)>& change) {
    IdxFiles files = three_images();
    change(files);
    return refusal([&] { files.read(); });
  };
  EXPECT_EQ(error([](IdxFiles& f) { f.images.resize(7); }),
            "images: ends within its header; expected a file in IDX format");
  EXPECT_EQ(error([](IdxFiles& f) { f.images = "\x1f\x8b\x08\x08 compressed"; }),
            "images: looks like a gzip file; expected images, or a name that ends in .gz");
  EXPECT_EQ(error([](IdxFiles& f) { std::swap(f.images, f.labels); }),
            "images: begins with the number 2049; expected 2051, images in IDX format");
  EXPECT_EQ(error([](IdxFiles& f) { f.images.pop_back(); }), "images: 17 bytes behind its header; expected 18");
  EXPECT_EQ(error([](IdxFiles& f) { f.labels += '\0'; }), "labels: 4 bytes behind its header; expected 3");
  EXPECT_EQ(error([](IdxFiles& f) { f.labels.back() = 10; }), "labels: label 10 of image 3; expected 0 to 9");
  EXPECT_EQ(error([](IdxFiles& f) {
              f.labels[7] = 2;
              f.labels.pop_back();
            }),
            "labels: 2 labels for 3 images; expected as many");
  EXPECT_EQ(error([](IdxFiles& f) { f.images.replace(4, 12, 12, '\x7f'); }),
            "images: a header of more than 2^40 elements; expected images");
  EXPECT_EQ(error([](IdxFiles& f) { f.images.replace(4, 12, std::string(12, '\0')).resize(16); }),
            "images: 0 images of 0 x 0 pixels; expected at least 1 image of 1 x 1");
  EXPECT_EQ(error([](IdxFiles& f) {
              f.images = f.images.replace(8, 8, std::string("\0\0\20\1\0\0\0\1", 8)) + std::string(3 * 4097 - 18, '\0');
            }),
            "images: images of 4097 x 1 pixels; expected at most 4096 a side");
}

TEST(Images, ThatAreDamagedAreReadOrRefused) {
  const unsigned seed = first_seed();
  SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return random() % n; };
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    IdxFiles files = three_images();
    std::string& bytes = below(2) == 0 ? files.images : files.labels;
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      bytes[below(bytes.size())] = static_cast<char>(below(256));
    }
    if (below(4) == 0) bytes.resize(below(bytes.size()));
    try {
      const LabelledImages images = files.read();
      EXPECT_EQ(images.pixels.size(), images.size() * static_cast<std::size_t>(images.height * images.width));
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace windrow::testing

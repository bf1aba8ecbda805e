// The sentences of the small grammar: they have the statistics that datasets.h states, and can be learned.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/mix.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

std::vector<DependencySentence> generated_treebank(std::size_t count, std::uint64_t seed) {
  std::istringstream in(generate_conllu(count, seed));
  return read_conllu(in, "generated");
}

TEST(GeneratedConllu, IsProjectiveAndAsLongAsStated) {
  for (std::uint64_t seed : {1, 2, 3}) {
    std::size_t words = 0, longest = 0;
    const auto sentences = generated_treebank(4000, seed);
    for (const DependencySentence& sentence : sentences) {
      words += sentence.heads.size();
      longest = std::max(longest, sentence.heads.size());
      EXPECT_TRUE(projective(sentence)) << "seed " << seed;
    }
    EXPECT_EQ(sentences.size(), 4000u) << "seed " << seed;
    EXPECT_NEAR(static_cast<double>(words) / 4000, 12.2, 0.5) << "seed " << seed;
    EXPECT_GT(longest, 40u) << "seed " << seed;
  }
}

TEST(GeneratedConllu, HasEnhancedDependenciesWithoutCircles) {
  std::size_t words = 0, shared = 0;
  for (const DependencySentence& sentence : generated_treebank(4000, 4)) {
    std::size_t arcs = 0;
    for (std::size_t word = 0; word < sentence.heads.size(); ++word) {
      const std::vector<Arc>& heads = sentence.enhanced[word];
      ++words;
      shared += heads.size() > 1;
      bool basic = false;
      for (const Arc& arc : heads) {
        arcs += arc.head != 0;
        basic |= arc.head == sentence.heads[word] && arc.relation.starts_with(sentence.relations[word]);
      }
      EXPECT_TRUE(basic) << sentence.forms[word];
    }
    EXPECT_EQ(enhanced_graph(sentence).children.size(), arcs);
  }
  EXPECT_NEAR(static_cast<double>(shared) / static_cast<double>(words), 0.05, 0.01);
}

TEST(GeneratedConllu, IsTheSameForTheSameSeed) {
  EXPECT_EQ(generate_conllu(20, 7), generate_conllu(20, 7));
  EXPECT_NE(generate_conllu(20, 7), generate_conllu(20, 8));
  EXPECT_EQ(testing::digest(generate_conllu(4000, 1)), 0x59fedc5d83e9431fu);
  EXPECT_EQ(generate_conllu(1, 1),
            "# text = bi gaba wu di nofe li do diba .\n"
            "1\tbi\t_\tPRON\t_\t_\t3\tnsubj\t3:nsubj|5:nsubj:xsubj|8:nsubj\t_\n"
            "2\tgaba\t_\tADV\t_\t_\t3\tadvmod\t3:advmod\t_\n"
            "3\twu\t_\tVERB\t_\t_\t0\troot\t0:root\t_\n"
            "4\tdi\t_\tPART\t_\t_\t5\tmark\t5:mark\t_\n"
            "5\tnofe\t_\tVERB\t_\t_\t3\txcomp\t3:xcomp\t_\n"
            "6\tli\t_\tPRON\t_\t_\t5\tobj\t5:obj\t_\n"
            "7\tdo\t_\tCCONJ\t_\t_\t8\tcc\t8:cc\t_\n"
            "8\tdiba\t_\tVERB\t_\t_\t3\tconj\t3:conj:do\t_\n"
            "9\t.\t_\tPUNCT\t_\t_\t3\tpunct\t3:punct\t_\n\n");
}

}  // namespace
}  // namespace windrow

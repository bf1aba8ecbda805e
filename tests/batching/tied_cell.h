// A table that is used in several ways at once: bags of indices, lookups and products.
#pragma once

#include "tests/batching/oracle.h"
#include "tests/batching/support.h"

namespace windrow::testing {

inline Row embedding_bag(const RowOperand& table, const OracleIndex& rows) {
  return apply(op::embedding_bag, {table}, {rows});
}

/// A vertex without children: words, some of them in bags, and a classifier that is the table.
struct TiedCell {
  static constexpr Index words = 6, width = 4, bag = 3;
  Parameter table;
  bool tied;

  TiedCell(Parameters& p, bool is_tied) : table(p.add("table", words, width, Initial::uniform(-1, 1))), tied(is_tied) {}

  void operator()(auto& v) const {
    const auto word = embedding(table, v.pull_index("word"));
    const auto some = embedding_bag(table, v.pull_index("bag", Presence::always, bag));
    const auto x = tanh(word * some) + word;
    v.push("bag", some);
    v.loss(row_sum(square(x)));
    if (tied) v.loss(softmax_cross_entropy(matmul_nt(x, table), v.pull_index("label")));
  }
};

inline GraphData some_words(std::int32_t vertices, unsigned seed) {
  std::mt19937 random(seed);
  GraphData data = leaves(static_cast<std::size_t>(vertices));
  for (std::int32_t v = 0; v < vertices; ++v) {
    data.indices["word"].push_back(static_cast<std::int32_t>(random() % 5));  // the last one is in no sample
    data.indices["label"].push_back(static_cast<std::int32_t>(random() % 6));
    for (Index i = 0; i < TiedCell::bag; ++i) {
      data.indices["bag"].push_back(static_cast<std::int32_t>(random() % 6) - 1);
    }
  }
  return data;
}

}  // namespace windrow::testing

#include "windrow/models/child_sum_tree_lstm.h"

namespace windrow {

ChildSumTreeLstm::ChildSumTreeLstm(Parameters& parameters, TreeLstmSizes sizes, Children children,
                                   const std::string& prefix)
    : sizes_(sizes),
      words_(parameters.add(prefix + "words", sizes.vocabulary, sizes.embedding, Initial::uniform(-0.1f, 0.1f))),
      in_(parameters.add_product(prefix + "in", sizes.embedding, 3 * sizes.hidden)),
      sum_(parameters.add_product(prefix + "sum", sizes.hidden, 3 * sizes.hidden)),
      bias_(parameters.add(prefix + "bias", 1, 3 * sizes.hidden, Initial::zeros())),
      forget_(parameters.add_product(prefix + "forget", sizes.hidden, sizes.hidden)),
      forget_in_(parameters.add_product(prefix + "forget_in", sizes.embedding, sizes.hidden)),
      forget_bias_(parameters.add(prefix + "forget_bias", 1, sizes.hidden, Initial::constant(1))),
      head_(parameters.add_product(prefix + "head", sizes.hidden, sizes.classes)),
      head_bias_(parameters.add(prefix + "head_bias", 1, sizes.classes, Initial::zeros())) {
  if (children == Children::sum) return;
  attention_ = {parameters.add_product(prefix + "attention", sizes.hidden, sizes.hidden),
                parameters.add_product(prefix + "attention score", sizes.hidden, 1)};
}

double ChildSumTreeLstm::flops(std::int64_t leaves, std::int64_t inner, std::int64_t edges) const {
  const auto h = static_cast<double>(sizes_.hidden), e = static_cast<double>(sizes_.embedding);
  const auto a = static_cast<double>(leaves), b = static_cast<double>(inner);
  const double per_edge = 2 * h * h + (attention_ ? 2 * h * h + 2 * h : 0);
  return 6 * h * e * a + 6 * h * h * b + per_edge * static_cast<double>(edges) +
         2 * h * static_cast<double>(sizes_.classes) * (a + b);
}

}  // namespace windrow

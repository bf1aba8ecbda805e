#include "windrow/models/tree_lstm.h"

namespace windrow {

double TreeLstm::flops(std::int64_t leaves, std::int64_t inner) const {
  const auto h = static_cast<double>(sizes_.hidden), e = static_cast<double>(sizes_.embedding);
  const auto a = static_cast<double>(leaves), b = static_cast<double>(inner);
  return 6 * h * e * a + 16 * h * h * b + 2 * h * static_cast<double>(sizes_.classes) * (a + b);
}

}  // namespace windrow

#include "windrow/models/gru.h"

namespace windrow {

Gru::Gru(Parameters& parameters, const std::string& name, Sizes sizes)
    : sizes_(sizes),
      in_(parameters.add_product(name + " in", sizes.from, 3 * sizes.hidden)),
      recurrent_(parameters.add_product(name + " recurrent", sizes.hidden, 3 * sizes.hidden)),
      bias_(parameters.add(name + " bias", 1, 3 * sizes.hidden, Initial::zeros())),
      recurrent_bias_(parameters.add(name + " recurrent bias", 1, 3 * sizes.hidden, Initial::zeros())) {}

double Gru::flops(std::int64_t steps, std::int64_t sequences) const {
  const auto from = static_cast<double>(sizes_.from), h = static_cast<double>(sizes_.hidden);
  return 6 * h * (from * static_cast<double>(steps) + h * static_cast<double>(steps - sequences));
}

}  // namespace windrow

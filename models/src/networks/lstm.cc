#include "windrow/models/lstm.h"

#include <algorithm>
#include <vector>

namespace windrow {

Lstm::Lstm(Parameters& parameters, const std::string& name, Sizes sizes)
    : sizes_(sizes),
      in_(parameters.add_product(name + " in", sizes.from, 4 * sizes.hidden)),
      recurrent_(parameters.add_product(name + " recurrent", sizes.hidden, 4 * sizes.hidden)),
      bias_(parameters.add(name + " bias", 1, 4 * sizes.hidden, Initial::zeros())) {
  // A positive bias of the forget gate keeps cell states at the start of training (Jozefowicz et al. 2015).
  const auto h = static_cast<std::ptrdiff_t>(sizes.hidden);
  std::vector<float> bias(static_cast<std::size_t>(4 * h), 0);
  std::fill(bias.begin() + 2 * h, bias.begin() + 3 * h, 1.0f);
  parameters.value(bias_).set(bias);
}

double Lstm::flops(std::int64_t steps, std::int64_t sequences) const {
  const auto from = static_cast<double>(sizes_.from), h = static_cast<double>(sizes_.hidden);
  return 8 * h * (from * static_cast<double>(steps) + h * static_cast<double>(steps - sequences));
}

}  // namespace windrow

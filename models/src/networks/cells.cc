// The building blocks of networks: their parameters.
#include <algorithm>
#include <vector>

#include "windrow/models/layers.h"

namespace windrow {

Lstm::Lstm(Parameters& parameters, const std::string& name, Sizes sizes)
    : sizes_(sizes),
      in_(parameters.add_product(parameter_name(name, "in"), sizes.from, 4 * sizes.hidden)),
      recurrent_(parameters.add_product(parameter_name(name, "recurrent"), sizes.hidden, 4 * sizes.hidden)),
      bias_(parameters.add(parameter_name(name, "bias"), 1, 4 * sizes.hidden, Initial::zeros())) {
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

Gru::Gru(Parameters& parameters, const std::string& name, Sizes sizes)
    : sizes_(sizes),
      in_(parameters.add_product(parameter_name(name, "in"), sizes.from, 3 * sizes.hidden)),
      recurrent_(parameters.add_product(parameter_name(name, "recurrent"), sizes.hidden, 3 * sizes.hidden)),
      bias_(parameters.add(parameter_name(name, "bias"), 1, 3 * sizes.hidden, Initial::zeros())),
      recurrent_bias_(parameters.add(parameter_name(name, "recurrent bias"), 1, 3 * sizes.hidden, Initial::zeros())) {}

double Gru::flops(std::int64_t steps, std::int64_t sequences) const {
  const auto from = static_cast<double>(sizes_.from), h = static_cast<double>(sizes_.hidden);
  return 6 * h * (from * static_cast<double>(steps) + h * static_cast<double>(steps - sequences));
}

AdditiveAttention::AdditiveAttention(Parameters& parameters, const std::string& name, Sizes sizes)
    : query_(parameters.add_product(parameter_name(name, "query"), sizes.query, sizes.hidden)),
      key_(parameters.add_product(parameter_name(name, "key"), sizes.key, sizes.hidden)),
      score_(parameters.add_product(parameter_name(name, "score"), sizes.hidden, 1)) {}

Crf::Crf(Parameters& parameters, const std::string& name, Index tags)
    : transitions_(parameters.add(parameter_name(name, "transitions"), tags, tags, Initial::zeros())),
      start_(parameters.add(parameter_name(name, "start"), 1, tags, Initial::zeros())),
      stop_(parameters.add(parameter_name(name, "stop"), tags, 1, Initial::zeros())) {}

}  // namespace windrow

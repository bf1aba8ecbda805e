#include "windrow/models/attention.h"

namespace windrow {

AdditiveAttention::AdditiveAttention(Parameters& parameters, const std::string& name, Sizes sizes)
    : query_(parameters.add_product(name + " query", sizes.query, sizes.hidden)),
      key_(parameters.add_product(name + " key", sizes.key, sizes.hidden)),
      score_(parameters.add_product(name + " score", sizes.hidden, 1)) {}

}  // namespace windrow

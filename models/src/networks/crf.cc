#include "windrow/models/crf.h"

namespace windrow {

Crf::Crf(Parameters& parameters, const std::string& name, Index tags)
    : transitions_(parameters.add(name + " transitions", tags, tags, Initial::zeros())),
      start_(parameters.add(name + " start", 1, tags, Initial::zeros())),
      stop_(parameters.add(name + " stop", tags, 1, Initial::zeros())) {}

}  // namespace windrow

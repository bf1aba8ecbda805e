// Parameters and functions of parameters as arguments.
#pragma once
#include "batching/parameters.h"
#include "windrow/batching/internal/lazy_weight.h"

namespace windrow::python {

/// An argument: a parameter or a function of parameters.
struct WeightArgument : LazyWeight {
  explicit WeightArgument(const LazyWeight& weight) : LazyWeight(weight) {}
};

}  // namespace windrow::python

template <>
struct nanobind::detail::type_caster<windrow::python::WeightArgument> {
  using Weight = windrow::python::WeightArgument;
  static constexpr auto Name = const_name("windrow.LazyWeight | windrow.Parameter");
  template <class T>
  using Cast = Weight;
  template <class T>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle from, std::uint32_t, cleanup_list*) noexcept {
    if (isinstance<windrow::LazyWeight>(from)) {
      weight_ = inst_ptr<windrow::LazyWeight>(from);
    } else if (isinstance<windrow::python::ParameterObject>(from)) {
      parameter_ = &inst_ptr<windrow::python::ParameterObject>(from)->parameter;
    }
    return weight_ != nullptr || parameter_ != nullptr;
  }
  explicit operator Weight() { return Weight(weight_ != nullptr ? *weight_ : windrow::LazyWeight(*parameter_)); }

 private:
  const windrow::LazyWeight* weight_ = nullptr;
  const windrow::Parameter* parameter_ = nullptr;
};

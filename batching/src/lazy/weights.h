// The functions of parameters alone that keys of lazy operations name: each has a number.
#pragma once

#include <cstdint>
#include <vector>

#include "parameters/parameter_stores.h"
#include "windrow/batching/internal/lazy_weight.h"
#include "windrow/batching/vertex_function.h"

namespace windrow::lazy {

/// Numbers equal functions alike. Parameters have the numbers of ParameterStores.
class Weights {
 public:
  std::int32_t number_of(const LazyWeight& weight, const ParameterStores& parameters);
  Type type_of(std::int32_t number, const ParameterStores& parameters) const;
  /// Appends the numbers of the parameters on which the function depends.
  void add_parameters(std::int32_t number, const ParameterStores& parameters, std::vector<std::int32_t>& to) const;
  Operand operand(std::int32_t number, const ParameterStores& parameters, Vertex& vertex) const;

 private:
  static constexpr std::int32_t first_made = 1 << 30;  // there are fewer parameters
  const LazyWeight& made(std::int32_t number) const { return made_[static_cast<std::size_t>(number - first_made)]; }

  std::vector<LazyWeight> made_;
};

}  // namespace windrow::lazy

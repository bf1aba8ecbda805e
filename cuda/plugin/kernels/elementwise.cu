// Elementwise kernels with generated formulas: one EachElement for each line of elementwise_formulas.h.
#include <cmath>

#include "plugin/kernel_call.h"

namespace windrow::cuda {
namespace {

// Formulas call functions by name alone; the operators of the same names are in another namespace.
using std::exp;
using std::fabs;
using std::fmax;
using std::fmin;
using std::log;
using std::log1p;
using std::sqrt;
using std::tanh;

#define WINDROW_FORMULA(op, operands, replaces, ...)                                                                   \
  struct op##_formula {                                                                                                \
    static constexpr const char* name = #op;                                                                           \
    static constexpr std::size_t inputs = operands;                                                                    \
    static constexpr bool updates = replaces;                                                                          \
    WINDROW_ON_DEVICE static float value([[maybe_unused]] float x, [[maybe_unused]] float y, [[maybe_unused]] float z, \
                                         [[maybe_unused]] float a, [[maybe_unused]] float b,                           \
                                         [[maybe_unused]] float old) {                                                 \
      return __VA_ARGS__;                                                                                              \
    }                                                                                                                  \
  };
#include "elementwise_formulas.h"
#undef WINDROW_FORMULA

/// The result may be one of the operands.
template <class Formula>
struct FormulaValue {
  static constexpr const char* name = Formula::name;
  In in[Formula::inputs];
  In before;  ///< the result, for operators that update it
  float a, b;

  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const float x = at(in[0], r, c);
    const float y = Formula::inputs > 1 ? at(in[Formula::inputs > 1 ? 1 : 0], r, c) : 0;
    const float z = Formula::inputs > 2 ? at(in[Formula::inputs > 2 ? 2 : 0], r, c) : 0;
    const float old = Formula::updates ? at(before, r, c) : 0;
    return Formula::value(x, y, z, a, b, old);
  }
  void accesses(Accesses& to) const {
    for (const In& operand : in) to.reads(operand);
  }
};

/// Dense matrices are taken as one row, which needs no division by the width.
template <class Formula>
int run_formula(const Call& call, const Queue& queue) {
  FormulaValue<Formula> value{};
  Out out = call.out;
  bool dense = out.dense();
  for (std::size_t k = 0; k < Formula::inputs; ++k) dense = dense && call.in[k].dense();
  for (std::size_t k = 0; k < Formula::inputs; ++k) value.in[k] = flat(call.in[k], dense);
  out = flat(out, dense);
  value.before = out;
  value.a = static_cast<float>(call.attributes.values[0]);
  value.b = static_cast<float>(call.attributes.values[1]);
  const bool add = !Formula::updates && adds(call);
  return launch(queue, shape_for_elements(queue, out.rows * out.width),
                EachElement<FormulaValue<Formula>>{value, out, add});
}

}  // namespace

const KernelEntry elementwise_kernels[] = {
#define WINDROW_FORMULA(op, ...) {#op, run_formula<op##_formula>},
#include "elementwise_formulas.h"
    {}};

}  // namespace windrow::cuda

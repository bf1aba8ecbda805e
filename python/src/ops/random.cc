// Random numbers.
#include "windrow/ops/random.h"

#include "ops/arrays.h"

namespace windrow::python {
namespace {

using nb::literals::operator""_a;

/// The functions that a Draw and a Generator have.
template <class Class>
void bind_fills(Class& draws) {
  using Source = typename Class::Type;
  draws
      .def(
          "uniform",
          [](Source& source, const Tensor& out, float low, float high) {
            const InUse use(out);
            const std::source_location from = calling_line();
            source.uniform(out, low, high, from);
            return out;
          },
          "out"_a, "low"_a = 0.0F, "high"_a = 1.0F, "Fills `out` with uniform numbers from [low, high); returns it.")
      .def(
          "normal",
          [](Source& source, const Tensor& out, float mean, float deviation) {
            const InUse use(out);
            const std::source_location from = calling_line();
            source.normal(out, mean, deviation, from);
            return out;
          },
          "out"_a, "mean"_a = 0.0F, "deviation"_a = 1.0F, "Fills `out` with normal numbers; returns it.")
      .def(
          "dropout_keys",
          [](Source& source, const IntTensor& out) {
            const InUse use(out);
            const std::source_location from = calling_line();
            source.dropout_keys(out, from);
            return out;
          },
          "out"_a, "Fills `out`, n x 3, with keys for dropout(); returns it.");
}

}  // namespace

void bind_random(nb::module_& m) {
  nb::class_<Draw> draw(
      m, "Draw",
      "The random numbers of (seed, number, stream): each fill gives the same numbers, whatever else was "
      "drawn. The program chooses the number of each draw, for example the number of a step.");
  draw.def(nb::init<std::uint64_t, std::uint64_t, std::uint32_t>(), "seed"_a, "number"_a = 0, "stream"_a = 0);
  bind_fills(draw);
  nb::class_<Generator> generator(
      m, "Generator",
      "A Draw that counts its fills: fill k has the numbers of Draw(seed, k, stream). They depend only on "
      "the seed, the stream and the order of the fills.");
  generator
      .def(
          "__init__",
          [](Generator* self, std::uint64_t seed, std::uint32_t stream, const Device* device) {
            const InUse use(device);
            new (self) Generator(use.engine(), seed, stream, calling_line());
          },
          "seed"_a, "stream"_a = 0, "device"_a = nb::none())
      .def_prop_ro("var", &Generator::var, "The variable that orders the draws.");
  bind_fills(generator);
}

}  // namespace windrow::python

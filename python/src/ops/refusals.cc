#include "ops/refusals.h"

#include "ops/elements.h"
#include "windrow/ops/tensor.h"

namespace windrow::python {

std::string short_type_name(nb::handle object) {
  const std::string name = nb::type_name(object.type()).c_str();
  const std::size_t point = name.rfind('.');
  return point == std::string::npos ? name : name.substr(point + 1);
}

namespace {

/// "+" for "__add__" and "__radd__"; other names as they are.
std::string shown_name(std::string_view name) {
  constexpr std::pair<std::string_view, const char*> symbols[] = {
      {"add__", "+"}, {"sub__", "-"}, {"truediv__", "/"}, {"matmul__", "@"}, {"mul__", "*"}};
  for (const auto& [end, symbol] : symbols) {
    if (name.ends_with(end)) return symbol;
  }
  return std::string(name);
}

}  // namespace

nb::builtin_exception refused_call(std::string_view name, std::span<const nb::handle> given,
                                   std::string_view expected) {
  std::string text = shown_name(name), separator = text.size() == 1 ? " of (" : "(";
  bool integers = false;
  for (const nb::handle one : given) {
    integers |= one.is_valid() && nb::isinstance<IntTensor>(one);
    text += separator + (one.is_valid() ? short_type_name(one) : "...");
    separator = ", ";
  }
  const char* const hint = integers ? "; x.astype('float32') makes a Tensor of an IntTensor" : "";
  return nb::type_error((text + "); expected " + std::string(expected) + hint).c_str());
}

std::pair<std::int64_t, std::int64_t> columns_of(nb::handle part, std::int64_t width) {
  if (!nb::isinstance<nb::slice>(part)) {
    throw nb::type_error(
        ("columns of an expression by an object of type " + short_type_name(part) +
         "; expected a slice, such as x[0:1] or x[8:16]: an expression is a row of each vertex or sample")
            .c_str());
  }
  const auto [begin, end, step, count] = nb::borrow<nb::slice>(part).compute(static_cast<std::size_t>(width));
  if (step != 1) throw MisuseError("columns with a step of " + std::to_string(step) + "; expected 1");
  return {begin, begin + static_cast<std::int64_t>(count)};
}

bool looks_like_array(nb::handle object) {
  return is_array(object) && !nb::object(nb::getattr(object, "ndim", nb::none())).equal(nb::int_(0));
}

}  // namespace windrow::python

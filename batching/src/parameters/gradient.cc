#include "parameters/gradient.h"

#include "windrow/ops/apply.h"

namespace windrow {

Tensor dense(const Device& device, const Gradient& gradient, const Type& shape, std::source_location from) {
  const Index rows = shape.rows.number();
  const Tensor sum(device, rows, shape.width, "gradient");
  Write write = Write::overwrite;
  if (gradient.all) {
    apply(device, op::scale, {.in = {*gradient.all}, .attributes = op::scaled_by(1)}, sum, from);
    write = Write::add;
  }
  for (const Gradient::Rows& part : gradient.rows) {
    const Attributes all_rows = op::to_rows(shape.rows);
    apply(device, op::scatter_rows, {.in = {part.rows}, .indices = {part.of}, .attributes = all_rows, .write = write},
          sum, from);
    write = Write::add;
  }
  if (write == Write::overwrite) sum.set(std::vector<float>(static_cast<std::size_t>(rows * shape.width), 0), from);
  return sum;
}

}  // namespace windrow

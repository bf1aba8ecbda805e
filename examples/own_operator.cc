// A user-defined operator: its shape, its gradient and its kernels. It is used like a built-in operator.
#include <cmath>
#include <cstdio>

#include "windrow/ops/apply.h"
#include "windrow/ops/kernel.h"

// y = x / (1 + |x|), and its gradient g / (1 + |x|)^2.
extern const windrow::Operator softsign, softsign_gradient;

windrow::Type one_shape(const windrow::Operator& op, const windrow::Signature& s) {
  for (const windrow::Type& type : s.in) {
    if (type != s.in[0]) throw windrow::shape_error(op, s, "operands of one shape");
  }
  return s.in[0];
}

windrow::GradientTerms softsign_gradients(const windrow::Signature&) {
  using windrow::Ref;
  return {windrow::GradientTerm{&softsign_gradient, {Ref::operand(0), Ref::gradient()}}};
}

constinit const windrow::Operator softsign{.name = "softsign",
                                           .inputs = 1,
                                           .infer = one_shape,
                                           .gradients = softsign_gradients,
                                           .locality = windrow::Locality::elementwise,
                                           .zero = 0b1};
constinit const windrow::Operator softsign_gradient{
    .name = "softsign_gradient", .inputs = 2, .infer = one_shape, .locality = windrow::Locality::elementwise};

template <class Real, class Value>
void for_each_element(const windrow::KernelCall<Real>& call, Value value) {
  for (windrow::Index r = 0; r < call.out.rows; ++r) {
    for (windrow::Index c = 0; c < call.out.width; ++c) {
      Real& out = call.out.row(r)[c];
      out = value(r, c) + (call.write == windrow::Write::add ? out : 0);
    }
  }
}

// For float it is the host's kernel, for double the reference.
template <class Real>
void softsign_kernel(const windrow::KernelCall<Real>& call) {
  for_each_element(call, [x = call.in[0]](auto r, auto c) { return x.row(r)[c] / (1 + std::abs(x.row(r)[c])); });
}

template <class Real>
void softsign_gradient_kernel(const windrow::KernelCall<Real>& call) {
  for_each_element(call, [x = call.in[0], g = call.in[1]](auto r, auto c) {
    const Real d = 1 + std::abs(x.row(r)[c]);
    return g.row(r)[c] / (d * d);
  });
}

int main() {
  windrow::Engine engine;
  windrow::Device host = windrow::host_device(engine);
  host.kernels.add(softsign, softsign_kernel);
  host.kernels.add(softsign_gradient, softsign_gradient_kernel);

  windrow::Tensor x(host, 1, 3);
  x.set({-1, 0.5, 3});
  const auto y = apply(host, softsign, {.in = {x}}).get();

  auto reference = windrow::reference_kernels();
  reference.add(softsign, softsign_kernel);
  reference.add(softsign_gradient, softsign_gradient_kernel);
  windrow::Application application;
  application.signature.in = {{windrow::Rows::count(1), 3}};
  application.in = {{-1, 0.5, 3}};
  const auto exact = evaluate(reference, softsign, application);
  const double error = gradient_error(reference, softsign, application);

  for (std::size_t i = 0; i < y.size(); ++i) std::printf("y = %.4f, exactly %.4f\n", y[i], exact[i]);
  std::printf("the gradient is %s\n", error < 1e-6 ? "right" : "wrong");
  return error < 1e-6 ? 0 : 1;
}

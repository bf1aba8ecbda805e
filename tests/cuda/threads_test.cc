// Kernels with a thread of the host for each thread of a team, so that ThreadSanitizer sees a missing barrier; against
// the same kernels in a loop.
#include <random>
#include <vector>

#include "tests/cuda/support.h"
#include "tests/ops/cases.h"
#include "tests/sanitized.h"
#include "tests/seed.h"
#include "windrow/ops/apply.h"

namespace windrow::testing {
namespace {

std::vector<std::vector<float>> results(fake::Threads threads) {
  fake::reset({.threads = threads});
  Engine engine({.policy = Policy::serial});
  const Device device = cuda::open_device(engine, 0).device;
  std::vector<std::vector<float>> all;
  for (const Operator* op : op::all()) {
    std::mt19937 random(first_seed());
    const Application c = random_case(*op, thread_sanitized ? 10 : 40, random);
    Operands operands{.attributes = c.signature.attributes};
    for (std::size_t k = 0; k < c.in.size(); ++k) {
      const Type& type = c.signature.in[k];
      operands.in.push_back(Tensor(device, type.rows.number(), type.width));
      operands.in.back().set({c.in[k].begin(), c.in[k].end()});
    }
    for (std::size_t k = 0; k < c.indices.size(); ++k) {
      const Type& type = c.signature.indices[k];
      operands.indices.push_back(IntTensor(device, type.rows.number(), type.width));
      operands.indices.back().set(c.indices[k]);
    }
    operands.write = Write::add;
    const Type type = infer(*op, c.signature);
    const auto half = [&] {
      const Tensor tensor(device, type.rows.number(), type.width);
      tensor.set(std::vector<float>(elements(type), 0.5f));
      return tensor;
    };
    while (operands.states.size() < op->states) operands.states.push_back(half());
    const Tensor out = half();
    apply(device, *op, operands, out);
    std::vector<float>& values = all.emplace_back(out.get());
    for (const Tensor& state : operands.states) {
      const std::vector<float> more = state.get();
      values.insert(values.end(), more.begin(), more.end());
    }
  }
  return all;
}

TEST(CudaKernels, GiveTheSameBitsWithRealThreads) {
  const auto expected = results(fake::Threads::loop), found = results(fake::Threads::real);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(found[i], expected[i]) << op::all()[i]->name.text() << ", seed " << first_seed();
  }
}

}  // namespace
}  // namespace windrow::testing

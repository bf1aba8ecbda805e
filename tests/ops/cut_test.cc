// Operators that are computed in pieces, against the whole.
#include "windrow/ops/internal/cut.h"

#include "tests/ops/host_tensors.h"
#include "tests/sanitized.h"
#include "windrow/ops/apply.h"

namespace windrow::testing {
namespace {

class CutOperator : public ::testing::TestWithParam<const Operator*> {
 protected:
  const Operator& op() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(All, CutOperator, ::testing::ValuesIn(op::all().begin(), op::all().end()),
                         [](const auto& about) { return std::string(about.param->name.text()); });

const std::shared_ptr<Allocator> memory = host_allocator();

/// A kernel that counts its calls.
int calls = 0;
Kernel<float> counting;
void count_and_run(const KernelCall<float>& call) {
  ++calls;
  counting(call);
}

TEST_P(CutOperator, GivesWhatTheWholeGives) {
  // Cut as finely as may be; outside an op the pieces run one after the other.
  const std::vector<Index> row_counts =
      sanitized ? std::vector<Index>{7, 129} : std::vector<Index>{1, 2, 7, 64, 129, 300};
  for (const Index rows : row_counts) {
    for (const Write write : {Write::overwrite, Write::add}) {
      if (op().updates && write == Write::overwrite) continue;
      const unsigned seed = first_seed() + static_cast<unsigned>(rows);
      SCOPED_TRACE("rows " + std::to_string(rows) + ", seed " + std::to_string(seed));
      std::mt19937 random(seed);
      const Application c = random_case(op(), rows, random);
      const Values before = random_before(op(), c, random);
      const Values whole = run_host(op(), c, before, write, seed);
      const Values cut = run_kernel(op(), c, before, write, seed, [&](const KernelCall<float>& call) {
        run_in_pieces(op(), host_kernels().find(op()), call, *memory, 1);
      });
      const bool same_bits = op().locality != Locality::sums_rows && !op().name.text().starts_with("matmul");
      if (same_bits) {
        EXPECT_EQ(cut, whole);
      } else {
        expect_close(cut, whole, 1e-5);
      }
    }
  }
}

TEST_P(CutOperator, IsCutWhereItsLocalityAllows) {
  std::mt19937 random(first_seed());
  const Application c = random_case(op(), 300, random);
  const Values before = random_before(op(), c, random);
  calls = 0;
  counting = host_kernels().find(op());
  run_kernel(op(), c, before, op().updates ? Write::add : Write::overwrite, 1,
             [&](const KernelCall<float>& call) { run_in_pieces(op(), count_and_run, call, *memory, 1); });
  const bool by_columns = op().columnwise || &op() == &op::matmul || &op() == &op::matmul_nt;
  if (op().locality == Locality::mixed) {
    EXPECT_EQ(calls, 1);
  } else if (!by_columns && c.signature.in[0].rows.number() >= 256) {  // the cases are too narrow for cuts by columns
    EXPECT_GT(calls, 1);
  }
}

TEST(Cut, SumsWideRowsByColumns) {
  std::mt19937 random(first_seed());
  const Signature signature{.in = {{Rows::count(90), 200}}, .indices = {}, .attributes = {}};
  const Application c{.signature = signature, .in = {random_values(signature.in[0], random)}, .indices = {}};
  const Values before = random_values(infer(op::column_sum, signature), random);
  calls = 0;
  counting = host_kernels().find(op::column_sum);
  const Values cut = run_kernel(op::column_sum, c, before, Write::add, 1, [](const KernelCall<float>& call) {
    run_in_pieces(op::column_sum, count_and_run, call, *memory, 1);
  });
  EXPECT_GT(calls, 1);
  EXPECT_EQ(cut, run_host(op::column_sum, c, before, Write::add, 1));
}

using CutRows = HostTensors;

TEST_F(CutRows, AreNamedAsThoseOfTheWholeInErrors) {
  constexpr Index rows = 5000, width = 256;
  const Tensor table = filled(10, width, 1), out(host, rows, width, "out");
  std::vector<std::int32_t> words(rows, 3);
  words[rows - 2] = 17;
  apply(host, op::gather_rows, {.in = {table}, .indices = {ints(rows, 1, words)}}, out);
  expect_error<OpError>([&] { out.get(); }, "index 17 at row " + std::to_string(rows - 2));
}

}  // namespace
}  // namespace windrow::testing

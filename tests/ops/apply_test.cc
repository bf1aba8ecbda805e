// Operators on tensors, as ops of the engine.
#include "windrow/ops/apply.h"

#include <filesystem>

#include "tests/ops/host_tensors.h"

namespace windrow::testing {
namespace {

using Apply = HostTensors;

TEST_F(Apply, OperandsOfNoRowsGiveNoRows) {
  const Tensor x = tensor(0, 3, {}), w = tensor(3, 2, {1, 2, 3, 4, 5, 6});
  const Tensor y = apply(host, op::matmul, {.in = {x, w}});
  EXPECT_EQ(y.rows(), 0);
  EXPECT_EQ(y.get(), Floats{});
  EXPECT_EQ(apply(host, op::neg, {.in = {Tensor(host, 0, 2)}}).get(), Floats{});  // nothing to write, nothing to read
  EXPECT_EQ(apply(host, op::column_sum, {.in = {y}}).get(), (Floats{0, 0}));
}

TEST_F(Apply, TensorsPassThroughForwardingFunctions) {
  std::vector<Tensor> tensors;
  tensors.emplace_back(host, 2, 3, "first");
  std::vector<IntTensor> indices;
  indices.emplace_back(host, 2, 1, "second");
  std::optional<Tensor> third;
  third.emplace(host, 1, 1, "third");
  const auto fourth = std::make_unique<Tensor>(host, 1, 1, "fourth");
  expect_error<OpError>([&] { tensors[0].get(); }, "'first'");
  expect_error<OpError>([&] { indices[0].get(); }, "'second'");
  expect_error<OpError>([&] { third->get(); }, "'third'");
  expect_error<OpError>([&] { fourth->get(); }, "'fourth'");
}

TEST_F(Apply, UndeclaredReadsOfTensorsAreFoundWhereTheEngineChecks) {
  Engine checking({.check = true});
  const Device device = host_device(checking);
  const Tensor x(device, 1, 3, "x"), y(device, 1, 1, "y");
  x.set({1, 2, 3});
  checking.push([from = x.view(), to = y.view()] { to.write().row(0)[0] = from.read().row(0)[1]; }, {y.write_access()});
  expect_error<OpError>([&] { y.get(); }, "read variable 'x', which it did not declare: add read(x)");
}

TEST_F(Apply, ATensorFromOutsideThatEndsInACaptureIsNamedByTheSecondLaunch) {
  std::optional<Tensor> outside = tensor(1, 1, {1}, "outside");
  const Graph graph = engine.capture([&] {
    apply(host, op::neg, {.in = {*outside}});
    outside.reset();
  });
  graph.launch();
  expect_error<MisuseError>([&] { graph.launch(); },
                            {"variable 'outside'", "this graph's first launch", "keep the tensor's handle"});
}

TEST_F(Apply, RefusesAResultOfAnotherShape) {
  const Tensor x = tensor(1, 3, {1, 2, 3}, "x"), out(host, 1, 2, "out");
  EXPECT_EQ(error_of<MisuseError>([&] { apply(host, op::neg, {.in = {x}}, out); }),
            "neg: operands 1 x 3; expected a result 1 x 3, not 1 x 2");
}

TEST_F(Apply, RefusesAResultThatOverlapsAnOperand) {
  const Tensor x = tensor(4, 4, Floats(16, 1));
  const auto refuses = [&](const Operator& op, const std::vector<Tensor>& in, const Tensor& out) {
    expect_error<MisuseError>([&] { apply(host, op, {.in = in}, out); }, "expected a result that overlaps no operand");
  };
  refuses(op::matmul, {x, x}, x);
  refuses(op::neg, {x.row_range(0, 2)}, x.row_range(1, 3));
  refuses(op::neg, {x.column_range(0, 2)}, x.column_range(1, 3));
  refuses(op::neg, {x.row_range(0, 3).column_range(0, 3)}, x.row_range(1, 4).column_range(1, 4));
  const auto buffer = std::make_shared<Buffer>(engine, host.memory, 64);
  refuses(op::transpose, {Tensor(buffer, 2, 3)}, Tensor(buffer, 3, 2));
  const IntTensor index(buffer, 1, 1);
  EXPECT_THROW(apply(host, op::gather_rows, {.in = {x}, .indices = {index}}, Tensor(buffer, 1, 4, 4)), MisuseError);
  EXPECT_EQ(x.get(), Floats(16, 1));
}

TEST_F(Apply, WorksBetweenPartsOfOneTensor) {
  const Tensor x = tensor(3, 4, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  apply(host, op::neg, {.in = {x.row_range(0, 1)}}, x.row_range(2, 3));
  apply(host, op::neg, {.in = {x.column_range(0, 2)}}, x.column_range(2, 4));
  EXPECT_EQ(x.get(), (Floats{1, 2, -1, -2, 5, 6, -5, -6, -1, -2, 1, 2}));
  const Tensor inner = x.column_range(1, 3).row_range(1, 3).column_range(1, 2);
  EXPECT_EQ(inner.get(), (Floats{-5, 1}));
  EXPECT_FALSE(x.row_range(0, 1).whole());
  EXPECT_FALSE(x.column_range(0, 1).whole());
  EXPECT_TRUE(x.row_range(0, 3).whole());
  EXPECT_FALSE(x.column_range(0, 1).row_range(0, 3).whole());
  EXPECT_FALSE(x.row_range(0, 1).column_range(0, x.width()).whole());
}

TEST_F(Apply, TensorsLieInABufferOfAnArena) {
  Arena arena(engine, host.memory, 256);
  const auto buffer = std::make_shared<Buffer>(arena.cut(6 * sizeof(float)));
  const Tensor rows(buffer, 2, 2), tail(buffer, 1, 2, 4);
  rows.set({1, 2, 3, 4});
  apply(host, op::column_sum, {.in = {rows}}, tail);
  EXPECT_EQ(Tensor(buffer, 1, 6).get(), (Floats{1, 2, 3, 4, 4, 6}));
  EXPECT_EQ(error_of<MisuseError>([&] { Tensor(buffer, 2, 2, 3); }),
            "tensor: 2 x 2 from element 3 on; expected a buffer that holds it, not one of 6 elements");
}

TEST_F(Apply, PoisonOfATensorStaysWhenOnlyAPartIsOverwritten) {
  const auto poisoned = [&] {
    const Tensor x(host, 2, 1);
    engine.push([] { throw std::runtime_error("broken"); }, {overwrite(x.var())});
    return x;
  };
  const Tensor one = tensor(1, 1, {1}), two = tensor(2, 1, {1, 1});
  const Tensor by_apply = poisoned(), by_set = poisoned(), by_adding = poisoned(), healed = poisoned();
  apply(host, op::neg, {.in = {one}}, by_apply.row_range(0, 1));
  EXPECT_THROW(by_apply.get(), OpError);
  by_set.row_range(0, 1).set({1});
  EXPECT_THROW(by_set.get(), OpError);
  apply(host, op::neg, {.in = {two}, .write = Write::add}, by_adding);
  EXPECT_THROW(by_adding.get(), OpError);
  EXPECT_THROW(healed.get(), OpError);
  apply(host, op::neg, {.in = {two}}, healed);
  EXPECT_EQ(healed.get(), (Floats{-1, -1}));
}

TEST_F(Apply, AddingToWhatNobodyWroteFailsTheOp) {
  const Tensor sum(host, 1, 1, "sum");
  apply(host, op::neg, {.in = {tensor(1, 1, {1})}, .write = Write::add}, sum);
  expect_error<OpError>([&] { sum.get(); }, "buffer 'sum' is read before anything was written to it");
}

TEST_F(Apply, KeepsMatrixProductsToTheThreadOfTheOp) {
  const auto threads = [] {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  Engine serial({.policy = Policy::serial});  // runs on this thread
  const Device device = host_device(serial);
  const Tensor x(device, 512, 512);
  x.set(Floats(512 * 512, 1));
  const auto before = threads();
  EXPECT_EQ(apply(device, op::matmul, {.in = {x, x}}).get(), Floats(512 * 512, 512));
  EXPECT_EQ(threads(), before);
}

TEST_F(Apply, ValuesMayBeReadWhileOthersWriteThem) {
  const Tensor x = tensor(1, 64, Floats(64, 0));
  std::thread writer([&] {
    for (int i = 1; i <= 200; ++i) x.set(Floats(64, static_cast<float>(i)));
  });
  for (int i = 0; i < 200; ++i) {
    const Floats values = x.get();
    EXPECT_EQ(values, Floats(64, values[0]));
  }
  writer.join();
}

TEST_F(Apply, UpdatesDemandToBeAdded) {
  const Tensor x = tensor(1, 1, {1});
  EXPECT_EQ(error_of<MisuseError>([&] { apply(host, op::sgd, {.in = {x}, .attributes = op::at_rate(1)}); }),
            "sgd: operands 1 x 1; expected Write::add");
}

TEST_F(Apply, StatesHaveTheResultsShapeAndOverlapNothing) {
  const auto of_width = [&](Index width) { return filled(1, width, 0); };
  const Tensor x = of_width(1), w = of_width(1), m = of_width(1), numbers = of_width(StepNumbers::count);
  const std::vector<std::vector<Tensor>> all_wrong = {{}, {m, m}, {x}, {w}, {of_width(2)}};
  for (const std::vector<Tensor>& wrong : all_wrong) {
    const Operands operands{.in = {x, numbers}, .write = Write::add, .states = wrong};
    EXPECT_EQ(error_of<MisuseError>([&] { apply(host, op::momentum_step, operands, w); }),
              "momentum_step: operands 1 x 1, 1 x 14; expected states (1) of 1 x 1 that overlap nothing else");
  }
  const Operands twice{.in = {x, numbers}, .write = Write::add, .states = {m, m}};
  EXPECT_THROW(apply(host, op::adam_step, twice, w), MisuseError);
}

TEST_F(Apply, AResultNeedsANumberOfRows) {
  const Attributes vertices = op::to_rows(Rows::vertices());
  EXPECT_EQ(
      error_of<MisuseError>([&] { apply(host, op::spread_rows, {.in = {tensor(1, 1, {1})}, .attributes = vertices}); }),
      "spread_rows: operands 1 x 1; expected attributes that count rows");
}

TEST_F(Apply, AKernelForOtherOperandsIsNoKernel) {
  static const Operator mul{.name = "mul", .inputs = 1, .infer = op::neg.infer};
  EXPECT_THROW(apply(host, mul, {.in = {tensor(1, 1, {1})}}), MisuseError);
  EXPECT_EQ(error_of<MisuseError>([&] { host.kernels.add(mul, nullptr); }),
            "operator 'mul': a null kernel; expected a function");
}

TEST_F(Apply, NamesAnOperatorWithoutKernel) {
  static const Operator mystery{.name = "mystery", .infer = op::neg.infer, .locality = Locality::elementwise};
  const Tensor x = tensor(1, 1, {1});
  EXPECT_EQ(error_of<MisuseError>([&] { apply(host, mystery, {.in = {x}}); }),
            "operator 'mystery' has no kernel in this table; expected one added with KernelTable::add");
}

TEST_F(Apply, FindsOperatorsByTheirNames) {
  for (const Operator* op : op::all()) EXPECT_EQ(host.kernels.named(op->name.text()), op);
  EXPECT_EQ(host.kernels.named("mystery"), nullptr);
  EXPECT_EQ(KernelTable<float>().named("mul"), nullptr);
}

TEST_F(Apply, AnIndexOutOfRangePoisonsTheResult) {
  const Tensor table = tensor(2, 1, {1, 2});
  const Tensor rows = apply(host, op::embedding, {.in = {table}, .indices = {ints(2, 1, {0, 2})}});
  expect_error<OpError>([&] { rows.get(); },
                        {"op 'embedding' (pushed at ", "apply_test.cc:", "index 2 at row 1; expected 0 to 1"});
  EXPECT_EQ(table.get(), (Floats{1, 2}));
}

TEST_F(Apply, TensorsOfImpossibleSizesAreRefused) {
  EXPECT_EQ(error_of<MisuseError>([&] { Tensor(host, -1, 2, "x"); }), "tensor 'x': -1 x 2; expected no negative size");
  constexpr Index huge = std::numeric_limits<Index>::max();
  EXPECT_EQ(error_of<OutOfMemory>([&] { Tensor(host, huge, 2, "x"); }),
            "tensor 'x': 9223372036854775807 x 2 is more than any memory holds");
  const Tensor x = tensor(2, 2, {1, 2, 3, 4});
  EXPECT_EQ(error_of<MisuseError>([&] { x.row_range(1, 3); }), "view of rows [1, 3); expected it within [0, 2)");
  EXPECT_EQ(error_of<MisuseError>([&] { x.set({1}); }), "set: 1 values; expected 2 x 2");
}

}  // namespace
}  // namespace windrow::testing

// Operator::scalar: the expressions, compiled, against the reference and against the host's kernels.
#include <dlfcn.h>

#include <filesystem>
#include <fstream>

#include "tests/ops/cases.h"

namespace windrow::testing {
namespace {

using Scalar = double (*)(double x, double y, double z, double a, double b, double old);

/// All expressions, compiled into a library.
class Scalars : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = (std::filesystem::temp_directory_path() / "windrow-scalar-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    const std::filesystem::path source = folder_ / "scalar.cc", made = folder_ / "scalar.so";
    std::ofstream out(source);
    out << "#include <cmath>\nusing namespace std;\n";
    for (const Operator* op : op::all()) {
      if (op->scalar.empty()) continue;
      out << "extern \"C\" double scalar_" << op->name.text()
          << "(double x, double y, double z, double a, double b, double old) {\n"
          << "  static_cast<void>(x), static_cast<void>(y), static_cast<void>(z);\n"
          << "  static_cast<void>(a), static_cast<void>(b), static_cast<void>(old);\n"
          << "  return " << op->scalar << ";\n}\n";
    }
    out.close();
    const std::string command = std::string(WINDROW_COMPILER) +
                                " -std=c++20 -O1 -Wall -Wextra -Werror -fPIC -shared -o " + made.string() + " " +
                                source.string();
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    library_ = ::dlopen(made.c_str(), RTLD_NOW);
    ASSERT_NE(library_, nullptr) << ::dlerror();
  }
  static void TearDownTestSuite() {
    if (library_ != nullptr) ::dlclose(library_);
    std::filesystem::remove_all(folder_);
  }

  static double value(const Operator& op, const Attributes& attributes, std::vector<double> operands, double old) {
    const std::string name = "scalar_" + std::string(op.name.text());
    const auto scalar = reinterpret_cast<Scalar>(::dlsym(library_, name.c_str()));
    EXPECT_NE(scalar, nullptr) << name;
    operands.resize(3, std::numeric_limits<double>::quiet_NaN());
    return scalar(operands[0], operands[1], operands[2], attributes.values[0], attributes.values[1], old);
  }

  inline static std::filesystem::path folder_;
  inline static void* library_ = nullptr;
};

TEST_F(Scalars, BelongToExactlyTheElementwiseOperators) {
  for (const Operator* op : op::all()) {
    EXPECT_EQ(op->scalar.empty(), op->locality != Locality::elementwise) << op->name.text();
    if (!op->scalar.empty()) {
      EXPECT_LE(op->inputs, 3u) << op->name.text();
    }
  }
}

TEST_F(Scalars, GiveWhatTheReferenceGives) {
  for (const Operator* op : op::all()) {
    if (op->scalar.empty()) continue;
    for (const Numbers numbers : {Numbers::real, Numbers::whole}) {
      std::mt19937 random(first_seed());
      const Application c = random_case(*op, 40, random, numbers);
      const Values before = random_values(infer(*op, c.signature), random);
      const Values expected =
          op->updates ? evaluate(reference_kernels(), *op, c, before) : evaluate(reference_kernels(), *op, c);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        std::vector<double> operands;
        for (const Values& operand : c.in) operands.push_back(operand[i]);
        ASSERT_NEAR(value(*op, c.signature.attributes, operands, before[i]), expected[i],
                    1e-12 * (1 + std::abs(expected[i])))
            << op->name.text() << ", seed " << first_seed();
      }
    }
  }
}

/// With infinity, and with what is not a number.
TEST_F(Scalars, GiveWhatTheHostGivesAtTheEnds) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Values ends = {0, 1, -1, inf, -inf, nan};
  for (const Operator* op : op::all()) {
    if (op->scalar.empty() || op->updates) continue;
    const std::size_t combinations = op->inputs == 1 ? 6 : op->inputs == 2 ? 36 : 216;
    for (std::size_t i = 0; i < combinations; ++i) {
      Application c;
      std::vector<double> operands;
      for (std::size_t k = 0, rest = i; k < op->inputs; ++k, rest /= 6) {
        operands.push_back(ends[rest % 6]);
        c.signature.in.push_back(counted(1, 1));
        c.in.push_back({operands.back()});
      }
      if (op == &op::binary_cross_entropy && (operands[1] < 0 || operands[1] > 1)) continue;  // the host refuses
      c.signature.attributes = some_attributes(*op);
      const double host = run_host(*op, c, {0}, Write::overwrite, 1)[0],
                   here = value(*op, c.signature.attributes, operands, 0);
      const std::string about = std::string(op->name.text()) + " of " + ::testing::PrintToString(operands);
      if (std::isnan(host)) {
        EXPECT_TRUE(std::isnan(here)) << about << ": " << here;
      } else if (std::isinf(host)) {
        EXPECT_EQ(here, host) << about;
      } else {
        EXPECT_NEAR(here, host, 1e-6) << about;
      }
    }
  }
  EXPECT_TRUE(std::isnan(value(op::binary_cross_entropy, {}, {1, 2}, 0)));
}

}  // namespace
}  // namespace windrow::testing

// The fake runtime: that it behaves as the CUDA runtime is documented to, and finds the faults that it is there for.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "tests/cuda/kernels.h"
#include "tests/cuda/support.h"
#include "tests/sanitized.h"

namespace windrow::testing {
namespace {

using fake::Order;

class Fake : public ::testing::Test {
 protected:
  Fake() { fake::reset(); }
  ~Fake() override {
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    for (float* start : memory_) cudaFree(start);
  }

  cudaStream_t stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t made;
    EXPECT_EQ(cudaStreamCreateWithPriority(&made, flags, 0), cudaSuccess);
    return streams_.emplace_back(made);
  }
  cudaEvent_t event() {
    cudaEvent_t made;
    EXPECT_EQ(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), cudaSuccess);
    return events_.emplace_back(made);
  }
  /// Device memory for floats, all zero.
  float* floats(std::size_t count) {
    void* made = nullptr;
    EXPECT_EQ(cudaMalloc(&made, count * sizeof(float)), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(made, 0, count * sizeof(float), nullptr), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    return memory_.emplace_back(static_cast<float*>(made));
  }
  static float value(const float* at) {
    float found = -1;
    EXPECT_EQ(cudaMemcpy(&found, at, sizeof found, cudaMemcpyDefault), cudaSuccess);
    return found;
  }
  /// Ends the test's reports, which the test expects.
  static std::string take_report() {
    const std::vector<std::string> all = fake::reports();
    fake::forget_reports();
    return all.empty() ? "" : all[0];
  }

 private:
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::vector<float*> memory_;
};

TEST_F(Fake, RunsLazilyWhatNobodyWaitsFor) {
  fake::set_order(Order::lazy, 1);
  const cudaStream_t on = stream();
  const cudaEvent_t done = event();
  float* const x = floats(1);
  launch_add(on, x, x, 1);
  cudaEventRecord(done, on);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(cudaEventQuery(done), cudaErrorNotReady);
  while (cudaEventQuery(done) == cudaErrorNotReady) std::this_thread::yield();
  EXPECT_EQ(value(x), 1);
}

TEST_F(Fake, FindsAMissingWait) {
  if (thread_sanitized) GTEST_SKIP() << "ThreadSanitizer sees this fault, too";
  for (const Order order : {Order::eager, Order::random, Order::lazy}) {
    for (const bool waits : {true, false}) {
      fake::set_order(order, 7);
      const cudaStream_t one = stream(), other = stream();
      const cudaEvent_t done = event();
      float* const x = floats(1);
      float* const y = floats(1);
      launch_add(one, x, x, 1);
      cudaEventRecord(done, one);
      if (waits) cudaStreamWaitEvent(other, done, 0);
      launch_add(other, y, x, 1);
      cudaDeviceSynchronize();
      const std::string report = take_report();
      if (waits) {
        EXPECT_EQ(report, "");
      } else {
        EXPECT_NE(report.find("nothing orders 'kernel add' on stream "), std::string::npos) << report;
        EXPECT_NE(report.find(", which writes, and 'kernel add' on stream "), std::string::npos) << report;
      }
    }
  }
}

TEST_F(Fake, TellsOverlappingMatricesFromInterleavedOnes) {
  if (thread_sanitized) GTEST_SKIP() << "ThreadSanitizer sees this fault, too";
  const cudaStream_t one = stream(), other = stream();
  float* const x = floats(64);
  const auto copy = [&](cudaStream_t on, int column, std::size_t columns) {
    cudaMemcpy2DAsync(x + column, 8 * sizeof(float), x + 32 + column, 8 * sizeof(float), columns * sizeof(float), 3,
                      cudaMemcpyDefault, on);
  };
  copy(one, 0, 4);
  copy(other, 4, 4);
  EXPECT_EQ(take_report(), "");
  copy(other, 3, 2);
  EXPECT_NE(take_report(), "");
  copy(one, 7, 1);
  EXPECT_NE(take_report(), "");
}

/// What a pool does that passes memory on to another stream too soon.
TEST_F(Fake, FindsMemoryThatIsUsedTooEarly) {
  if (thread_sanitized) GTEST_SKIP() << "ThreadSanitizer sees this fault, too";
  const cudaStream_t one = stream(), other = stream();
  float* const x = floats(64);
  float* const result = floats(1);
  launch_add(one, result, x, 1);                     // reads x, which is then freed
  cudaMemsetAsync(x, 0, 64 * sizeof(float), other);  // and given to work of the other stream
  const std::string report = take_report();
  EXPECT_NE(report.find("'kernel add'"), std::string::npos) << report;
  EXPECT_NE(report.find("'a clear'"), std::string::npos) << report;
}

TEST_F(Fake, FindsMemoryThatIsUsedTooLate) {
  void* x = nullptr;
  ASSERT_EQ(cudaMalloc(&x, 256), cudaSuccess);
  cudaFree(x);
  cudaMemsetAsync(x, 0, 256, stream());
  EXPECT_EQ(take_report(), "'a clear' on stream 0, which writes memory that is not allocated");
}

TEST_F(Fake, FindsAMissingBarrier) {
  float* const x = floats(64);
  const cudaStream_t on = stream();
  launch_rotate(on, x, true);
  EXPECT_EQ(cudaStreamSynchronize(on), cudaSuccess);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(value(x + i), static_cast<float>(i + 1));
  EXPECT_EQ(take_report(), "");
  launch_rotate(on, x, false);
  EXPECT_EQ(cudaStreamSynchronize(on), cudaSuccess);
  const std::string report = take_report();
  EXPECT_NE(report.find("kernel 'rotate': shared memory at byte "), std::string::npos) << report;
  EXPECT_NE(report.find("without sync() between them"), std::string::npos) << report;
}

TEST(FakeDeathTest, KeepsMemoryOutOfTheHostsReach) {
  void* x = nullptr;
  ASSERT_EQ(cudaMalloc(&x, 64), cudaSuccess);
  EXPECT_DEATH(*static_cast<volatile float*>(x) = 1, "");
}

}  // namespace
}  // namespace windrow::testing

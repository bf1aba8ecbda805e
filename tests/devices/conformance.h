// What every device must do. Start here.
//
// The suite is in the *_conformance.cc files. A device's test program compiles them and names its devices:
//
//   INSTANTIATE_TEST_SUITE_P(Host, OnDevice, ::testing::ValuesIn(cases), case_name);
#pragma once

#include "tests/batching/support.h"
#include "windrow/ops/random.h"

namespace windrow::testing {

/// A device for one test. The engine must outlive it.
struct DeviceUnderTest {
  Device device;
  /// Another ordered lane of the same device; host_lane for the host.
  LaneId second_lane = host_lane;
  enum class Kernels { own, of_host } kernels = Kernels::own;
  std::shared_ptr<void> keeps = nullptr;
};

struct DeviceCase {
  std::string name;
  Policy policy;
  int workers;
  /// `capacity`: the device's memory in bytes.
  DeviceUnderTest (*make)(Engine& engine, std::size_t capacity);
};

/// Whether devices are tested with this setup. ThreadSanitizer sees with two workers what it sees with one.
inline bool takes_part(const Setup& setup) { return setup.workers != 8 && !(thread_sanitized && setup.workers == 1); }

inline std::string case_name(const ::testing::TestParamInfo<DeviceCase>& info) {
  return info.param.name + "_" + std::string(to_string(info.param.policy)) + "_" + std::to_string(info.param.workers);
}

class OnDevice : public ::testing::TestWithParam<DeviceCase> {
 protected:
  explicit OnDevice(std::size_t capacity = std::size_t{64} << 20, EngineOptions more = {})
      : engine(with_policy(more)), under_test(GetParam().make(engine, capacity)), device(under_test.device) {}

  Tensor tensor(Index rows, Index width, std::vector<float> values, OpName name = "tensor") const {
    Tensor made(device, rows, width, name);
    made.set(std::move(values));
    return made;
  }
  IntTensor ints(Index rows, Index width, std::vector<std::int32_t> values) const {
    IntTensor made(device, rows, width, "ints");
    made.set(std::move(values));
    return made;
  }

  Engine engine;
  DeviceUnderTest under_test;
  const Device& device;

 private:
  static EngineOptions with_policy(EngineOptions options) {
    options.policy = GetParam().policy;
    options.workers = GetParam().workers;
    return options;
  }
};

/// The operands of a case as tensors of the device, every second one as columns of a wider tensor, unless all are
/// whole.
class Applied {
 public:
  enum class Form { parts, whole };

  Applied(const Device& device, const Application& c, Form form = Form::parts) : device_(device) {
    for (std::size_t k = 0; k < c.in.size(); ++k) {
      const std::vector<float> values(c.in[k].begin(), c.in[k].end());
      made.in.push_back(view<float>(c.signature.in[k], form == Form::parts && k % 2 == 1));
      made.in.back().set(values);
    }
    for (std::size_t k = 0; k < c.indices.size(); ++k) {
      made.indices.push_back(view<std::int32_t>(c.signature.indices[k], false));
      made.indices.back().set(c.indices[k]);
    }
    made.attributes = c.signature.attributes;
  }
  template <class T>
  TensorOf<T> view(const Type& type, bool part) const {
    const TensorOf<T> whole(device_, type.rows.number(), type.width + (part ? 5 : 0));
    return part ? whole.column_range(2, 2 + type.width) : whole;
  }

  Operands made;

 private:
  const Device& device_;
};

/// For what takes long: instantiated for fewer policies.
class OnDeviceInFull : public OnDevice {};

/// For what single kernels compute, whatever the policy.
class KernelsOnDevice : public OnDevice {};

/// A device of little memory.
class OnSmallDevice : public OnDevice {
 public:
  static constexpr std::size_t capacity = std::size_t{1} << 20;
  OnSmallDevice() : OnDevice(capacity) {}
};

/// An engine that checks accesses.
class OnCheckedDevice : public OnDevice {
 public:
  OnCheckedDevice() : OnDevice(std::size_t{64} << 20, {.check = true}) {}
};

}  // namespace windrow::testing

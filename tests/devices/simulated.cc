#include "tests/devices/simulated.h"

#include <cstring>
#include <limits>
#include <set>

#include "windrow/memory/pool.h"
#include "windrow/ops/operators.h"

namespace windrow::testing {
namespace {

/// All simulated memories, for kernels, which get addresses alone.
struct Memories {
  std::mutex mutex;
  std::set<const SimMemory*> all;
};
Memories& memories() {
  static Memories made;
  return made;
}

SimLane& lane_of(Lane* lane, const char* work) {
  auto* const simulated = dynamic_cast<SimLane*>(lane);
  if (simulated == nullptr) throw Error(std::string(work) + ": not on a simulated lane");
  return *simulated;
}

template <class T>
Matrix<T> mapped(const Matrix<T>& matrix) {
  if (matrix.rows == 0 || matrix.width == 0) return matrix;
  return {SimMemory::of(matrix.data).mapped(matrix.data), matrix.rows, matrix.width, matrix.stride};
}

/// A kernel call that owns its spans, with the lane's addresses.
struct Issued {
  std::vector<Matrix<const float>> in;
  std::vector<Matrix<const std::int32_t>> indices;
  std::vector<Matrix<float>> states;
  KernelCall<float> call;

  explicit Issued(const KernelCall<float>& of) : call(of) {
    for (const auto& matrix : of.in) in.push_back(mapped(matrix));
    for (const auto& matrix : of.indices) indices.push_back(mapped(matrix));
    for (const auto& matrix : of.states) states.push_back(mapped(matrix));
    call.in = in;
    call.indices = indices;
    call.states = states;
    call.out = mapped(of.out);
    call.lane = nullptr;
  }
  Issued(const Issued&) = delete;
  Issued& operator=(const Issued&) = delete;
};

/// The host's kernel throws where an index is out of range. A device's kernels would make such rows NaN; this one's
/// make the whole result NaN.
void run_within_memory(const KernelCall<float>& call) {
  lane_of(call.lane, "a kernel").launch([issued = std::make_shared<Issued>(call)] {
    const Matrix<float>& out = issued->call.out;
    try {
      host_kernels().find (*issued->call.op)(issued->call, *host_allocator());
    } catch (const MisuseError&) {
      for (Index r = 0; r < out.rows; ++r) {
        std::fill_n(out.row(r), out.width, std::numeric_limits<float>::quiet_NaN());
      }
    }
  });
}

}  // namespace

SimMemory::SimMemory(std::shared_ptr<SimLane> lane, std::size_t capacity)
    : lane_(std::move(lane)), name_(lane_->name()), memory_(capacity) {
  std::lock_guard lock(memories().mutex);
  memories().all.insert(this);
}

SimMemory::~SimMemory() {
  {
    std::unique_lock lock(mutex_);
    released_.wait_for(lock, std::chrono::seconds(60), [&] { return releasing_ == 0; });
  }
  std::lock_guard lock(memories().mutex);
  memories().all.erase(this);
}

const SimMemory& SimMemory::of(const void* device_address) {
  std::lock_guard lock(memories().mutex);
  for (const SimMemory* memory : memories().all) {
    if (memory->memory_.contains(device_address)) return *memory;
  }
  throw Error("a kernel of a simulated device: an address outside its memory");
}

std::byte* SimMemory::allocate(std::size_t bytes) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (const auto range = memory_.take(bytes)) return memory_.address(*range);
    const bool waited =
        releasing_ > 0 && released_.wait_for(lock, std::chrono::seconds(10)) == std::cv_status::no_timeout;
    if (waited) continue;
    throw OutOfMemory(name_ + ": " + std::to_string(bytes) + " bytes are not to be had; " +
                      std::to_string(memory_.taken_bytes()) + " of " + std::to_string(memory_.capacity()) +
                      " are in use");
  }
}

void SimMemory::deallocate(std::byte* start, std::size_t) noexcept {
  TwiceMapped::Range range{};
  {
    std::lock_guard lock(mutex_);
    range = memory_.find(start).value();
    ++releasing_;
  }
  lane_->launch([this, range] { release(range); }, SimLane::Runs::always);
}

void SimMemory::release(TwiceMapped::Range range) {
  std::memset(memory_.contents(range), 0xcd, range.size());
  std::lock_guard lock(mutex_);
  memory_.give_back(range);
  --releasing_;
  released_.notify_all();
}

std::size_t SimMemory::held() const {
  std::lock_guard lock(mutex_);
  return memory_.taken_bytes();
}

void SimMemory::upload(Lane* lane, std::byte* to, const std::byte* from_host, const CopyShape& shape) {
  lane_of(lane, "upload").launch([to = mapped(to), from_host, shape] {
    host_allocator()->upload(nullptr, to, from_host, shape);
  });
}

void SimMemory::download(Lane* lane, std::byte* to_host, const std::byte* from, const CopyShape& shape) {
  lane_of(lane, "download").launch([to_host, from = mapped(from), shape] {
    host_allocator()->download(nullptr, to_host, from, shape);
  });
}

void SimMemory::clear(Lane* lane, std::byte* start, std::size_t bytes) {
  lane_of(lane, "clear").launch([start = mapped(start), bytes] { std::memset(start, 0, bytes); });
}

SimulatedDevice simulated_device(Engine& engine, const SimulatedOptions& options) {
  SimulatedDevice made;
  made.lane = std::make_shared<SimLane>(options.name, options.number, options.seed);
  made.memory = std::make_shared<SimMemory>(made.lane, options.capacity);
  KernelTable<float> kernels;
  for (const Operator* op : op::all()) kernels.add(*op, run_within_memory);
  std::shared_ptr<Allocator> memory = made.memory;
  if (options.pool) memory = std::make_shared<Pool>(memory);
  made.device = {.name = options.name,
                 .engine = engine,
                 .lane = engine.add_lane(made.lane),
                 .memory = std::move(memory),
                 .kernels = std::move(kernels),
                 .row_stride = [](Index width) { return (width + 3) / 4 * 4; }};
  return made;
}

}  // namespace windrow::testing

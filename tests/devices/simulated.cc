#include "tests/devices/simulated.h"

#include <algorithm>
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

Matrix<float> row_of(const Matrix<float>& matrix, Index row) {
  return {matrix.row(row), 1, matrix.width, matrix.stride};
}
template <class T>
Matrix<const T> row_of(const Matrix<const T>& matrix, Index row) {
  return {matrix.row(row), 1, matrix.width, matrix.stride};
}

/// The rows of the call that belong to row r: of the operands that the operator does not take whole, and of the
/// indices.
struct RowOfCall {
  std::vector<Matrix<const float>> in;
  std::vector<Matrix<const std::int32_t>> indices;
  KernelCall<float> call;

  RowOfCall(const KernelCall<float>& whole, unsigned taken_whole, std::size_t by_row, Index r)
      : in(whole.in.begin(), whole.in.end()), indices(whole.indices.begin(), whole.indices.end()), call(whole) {
    for (std::size_t k = 0; k < in.size(); ++k) {
      if ((taken_whole >> k & 1) == 0) in[k] = row_of(in[k], r);
    }
    for (std::size_t k = 0; k < by_row; ++k) indices[k] = row_of(indices[k], r);
    call.in = in;
    call.indices = indices;
  }
};

/// Whether a row of the result depends on its row of the first indices, and on all of the other operands.
bool gathers_rows(const Operator& op) {
  return &op == &op::gather_sum || &op == &op::gather_weighted_sum || &op == &op::gather_dot;
}

/// The host's kernel throws where an index is out of range. A device's makes the row of the result NaN.
void run_row_by_row(const Kernel<float>& kernel, const KernelCall<float>& call) {
  const bool gathers = gathers_rows(*call.op);
  for (Index r = 0; r < call.out.rows; ++r) {
    RowOfCall row(call, gathers ? ~0u : call.op->whole, gathers ? 1 : call.indices.size(), r);
    row.call.out = row_of(call.out, r);
    try {
      kernel(row.call);
    } catch (const MisuseError&) {
      std::fill_n(row.call.out.data, row.call.out.width, std::numeric_limits<float>::quiet_NaN());
    }
  }
}

/// A device leaves out the rows of a sum whose index is out of range.
void add_row_by_row(const Kernel<float>& kernel, const KernelCall<float>& call) {
  for (Index r = 0; call.write == Write::overwrite && r < call.out.rows; ++r) {
    std::fill_n(call.out.row(r), call.out.width, 0.0f);
  }
  for (Index r = 0; r < call.in[0].rows; ++r) {
    RowOfCall row(call, 0, call.indices.size(), r);
    row.call.write = Write::add;
    try {
      kernel(row.call);
    } catch (const MisuseError&) {
    }
  }
}

void run_within_memory(const KernelCall<float>& call) {
  lane_of(call.lane, "a kernel").launch([issued = std::make_shared<Issued>(call)] {
    const Operator& op = *issued->call.op;
    const Kernel<float> kernel = host_kernels().find(op);
    const Matrix<float>& out = issued->call.out;
    std::vector<std::vector<float>> before;  // as the host's kernel may have written a part when it throws
    for (Index r = 0; r < out.rows; ++r) before.emplace_back(out.row(r), out.row(r) + out.width);
    try {
      kernel(issued->call, *host_allocator());
    } catch (const MisuseError&) {
      for (Index r = 0; r < out.rows; ++r) std::ranges::copy(before[static_cast<std::size_t>(r)], out.row(r));
      if (op.locality == Locality::sums_rows) return add_row_by_row(kernel, issued->call);
      const bool by_rows = op.locality != Locality::mixed || gathers_rows(op);
      if (by_rows) run_row_by_row(kernel, issued->call);
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

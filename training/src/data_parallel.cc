#include "windrow/training/data_parallel.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "buckets.h"
#include "compression.h"
#include "shards.h"
#include "windrow/comm/internal/member.h"
#include "windrow/training/optimiser.h"

namespace windrow {
namespace {

/// What a member knows about the gradient of a parameter when its minibatch is pushed.
enum Known : std::int64_t { frozen, none, rows, all };

/// The buckets of an update that is not sharded.
enum Compressed : std::size_t { yes, no };

/// Which of the tensors that it was given share elements. A value.
class Overlaps {
 public:
  /// The number of an earlier tensor that shares an element with this one.
  std::optional<std::size_t> add(std::size_t number, const Tensor& tensor) {
    auto& of_buffer = tensors_[tensor.buffer().get()];
    const auto other = std::ranges::find_if(of_buffer, [&](const auto& each) { return each.second.overlaps(tensor); });
    const std::optional found = other == of_buffer.end() ? std::nullopt : std::optional(other->first);
    of_buffer.emplace_back(number, tensor);
    return found;
  }

 private:
  std::map<const Buffer*, std::vector<std::pair<std::size_t, Tensor>>> tensors_;
};

}  // namespace

DataParallel::DataParallel(Communicator communicator, Parameters& parameters, DataParallelOptions options)
    : communicator_(std::move(communicator)), parameters_(parameters), options_(options) {
  std::exception_ptr refused;
  try {
    check();
  } catch (const MisuseError&) {
    refused = std::current_exception();
  }
  // So that the other members do not wait for one that is refused.
  const auto all = communicator_.exchange(std::vector<std::int64_t>{refused ? 1 : 0});
  if (refused) std::rethrow_exception(refused);
  if (const auto other = std::ranges::find(all, 1); other != all.end()) {
    throw CommError("DataParallel: rank " + std::to_string(other - all.begin()) + " was refused its options");
  }
  parameters.set_member(communicator_.rank(), communicator_.size());
  require_equal();
  if (options.sharded != nullptr) {
    shards_ = std::make_shared<Shards>(communicator_, parameters, options);
    options.sharded->shard(shards_);
  }
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < parameters.size(); ++i) values.push_back(parameters.value(parameters[i]));
  communicator_.broadcast(values, 0, {.name = "initial parameters"});
}

DataParallel::~DataParallel() = default;

void DataParallel::check() {
  if (options_.bucket_bytes < 1) throw MisuseError("DataParallelOptions.bucket_bytes = 0; expected 1 or more");
  if (options_.part_bytes % 4 != 0) {
    throw MisuseError("DataParallelOptions.part_bytes = " + std::to_string(options_.part_bytes) +
                      "; expected a multiple of 4");
  }
  if (!parameters_.device().engine.get() || parameters_.device().memory != communicator_.device().memory) {
    throw MisuseError("DataParallel: parameters on " + parameters_.device().name + "; expected those of " +
                      communicator_.device().name + ", the communicator's device");
  }
  Overlaps values;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto other = values.add(i, parameters_.value(parameters_[i]));
    if (!other) continue;
    throw MisuseError("DataParallel: parameters '" + parameters_.name(parameters_[*other]) + "' and '" +
                      parameters_.name(parameters_[i]) +
                      "' share memory; expected one parameter that is used in both places, so that it takes one step");
  }
  const bool compresses = options_.compression.form != Compression::Form::none;
  if (communicator_.member()->nested() != nullptr && (compresses || options_.sharded != nullptr)) {
    throw MisuseError(std::string("DataParallelOptions: ") + (compresses ? "compression" : "a sharded update") +
                      " in a NestedGroup; expected none, or another group");
  }
  if (compresses) {
    if (parameters_.non_finite() == NonFinite::skip) {
      throw MisuseError(
          "DataParallelOptions: compression, which keeps gradients that are not finite, and parameters with "
          "NonFinite::skip; expected one of both");
    }
    compressed_ = std::make_unique<CompressedSums>(communicator_, options_.compression);
  }
  if (options_.sharded != nullptr && !options_.sharded->is_of(parameters_)) {
    throw MisuseError("DataParallelOptions.sharded: an optimiser of other parameters; expected one of these");
  }
  if (options_.sharded != nullptr && compressed_) {
    throw MisuseError("DataParallelOptions: compression, and a sharded update; expected one of both");
  }
}

void DataParallel::require_equal() const {
  const std::string me = "DataParallel: rank " + std::to_string(communicator_.rank()) + " has ";
  const std::size_t count = parameters_.size();
  const auto counts = communicator_.exchange(std::vector{static_cast<std::int64_t>(count)});
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] == static_cast<std::int64_t>(count)) continue;
    throw CommError(me + std::to_string(count) + " parameters, but rank " + std::to_string(rank) + " has " +
                    std::to_string(counts[rank]));
  }
  std::vector<std::string> own = {
      std::to_string(options_.bucket_bytes) + " bytes in a bucket",
      std::to_string(options_.part_bytes) + " bytes in a part",
      options_.priority ? "priorities" : "no priorities",
      options_.compression.form == Compression::Form::none ? "no compression" : "compression",
      options_.sharded != nullptr ? "a sharded update" : "no sharded update",
      parameters_.non_finite() == NonFinite::skip ? "NonFinite::skip" : "no NonFinite::skip"};
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor& value = parameters_.value(parameters_[i]);
    own.push_back("parameter " + std::to_string(i) + " '" + parameters_.name(parameters_[i]) + "' of " +
                  std::to_string(value.rows()) + " x " + std::to_string(value.width()) +
                  (parameters_.frozen(parameters_[i]) ? ", frozen" : ""));
  }
  std::vector<std::int64_t> numbers;
  for (const std::string& one : own) numbers.push_back(fingerprint(one));
  const auto of_all = communicator_.exchange(numbers);
  for (std::size_t i = 0; i < of_all.size(); ++i) {
    if (of_all[i] == numbers[i % own.size()]) continue;
    throw CommError(me + own[i % own.size()] + ", unlike rank " + std::to_string(i / own.size()));
  }
}

/// This member's gradients of the parameters whose number is in `which`. Each is one tensor, which may be the memory
/// that the minibatch has written. On a tape, one tensor can be the gradient of several parameters, such as the
/// operands of a sum. It would be summed once for each of them, so all but one get a copy.
std::map<std::size_t, Tensor> DataParallel::own_sums(const std::vector<std::size_t>& which,
                                                     std::source_location from) const {
  std::map<std::size_t, Tensor> sums;
  Overlaps overlaps;
  for (const std::size_t i : which) {
    const Parameter parameter = parameters_[i];
    const auto copy = [&] { return parameters_.dense_gradient(parameter, from); };
    Tensor sum = parameters_.has_dense_gradient(parameter) ? *parameters_.summed_gradient(parameter, from).all : copy();
    if (overlaps.add(i, sum)) sum = copy();
    sums.emplace(i, std::move(sum));
  }
  return sums;
}

void DataParallel::average(std::source_location from) {
  if (shards_) throw MisuseError("DataParallel::average: a sharded update; expected combine() in each step");
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_.frozen(parameters_[i])) values.push_back(parameters_.value(parameters_[i]));
  }
  if (values.empty()) return;
  communicator_.all_reduce(values, Combine::mean,
                           {.name = "parameters", .part_bytes = options_.part_bytes, .pushed_at = from});
}

/// The sums of one step's gradients over all members, or at the owners of parameters.
Buckets DataParallel::new_sums(std::source_location from) const {
  if (shards_) return shards_->sums(from);
  const auto push = [this](std::size_t bucket, const Buckets::Parts& parts, const CollectiveOptions& options) {
    if (bucket == Compressed::yes) return compressed_->push(parts, options);
    communicator_.all_reduce(tensors_of(parts), Combine::sum, options);
  };
  return {options_, {.name = "gradients", .pushed_at = from}, push};
}

std::size_t DataParallel::combine(std::size_t samples, std::source_location from) {
  const auto members = static_cast<std::size_t>(communicator_.size());
  const std::size_t count = parameters_.size();
  // What all members know about their gradients.
  std::vector<std::vector<std::int32_t>> looked_up(count);
  std::vector<std::int64_t> own = {static_cast<std::int64_t>(samples)};
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter parameter = parameters_[i];
    const bool dense = parameters_.has_dense_gradient(parameter);
    if (!dense) looked_up[i] = parameters_.looked_up_rows(parameter);
    const Known of_gradient = dense ? all : looked_up[i].empty() ? none : rows;
    own.push_back(parameters_.frozen(parameter) ? frozen : of_gradient);
    own.push_back(static_cast<std::int64_t>(looked_up[i].size()));
  }
  const std::vector<std::int64_t> of_all = communicator_.exchange(own);
  const auto known = [&](std::size_t member, std::size_t i) { return of_all[member * own.size() + 1 + 2 * i]; };
  const auto row_count = [&](std::size_t member, std::size_t i) { return of_all[member * own.size() + 2 + 2 * i]; };
  std::size_t samples_of_all = 0;
  for (std::size_t member = 0; member < members; ++member) {
    samples_of_all += static_cast<std::size_t>(of_all[member * own.size()]);
  }

  // The kind of each sum comes from the member that knows least about the rows that it needs.
  std::vector<std::int64_t> kinds(count, none);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t member = 0; member < members; ++member) {
      kinds[i] = std::max(kinds[i], known(member, i));
      if ((known(member, i) == frozen) == (known(0, i) == frozen)) continue;
      const auto state = [&](std::size_t at) { return known(at, i) == frozen ? "frozen" : "not frozen"; };
      throw CommError("DataParallel::combine: parameter '" + parameters_.name(parameters_[i]) + "' is " + state(0) +
                      " at rank 0, but " + state(member) + " at rank " + std::to_string(member) +
                      "; expected the same at all");
    }
  }
  // The rows that some member has looked up, by parameter.
  std::vector<std::int64_t> own_rows;
  std::size_t most_rows = 0;
  for (std::size_t member = 0; member < members; ++member) {
    std::size_t total = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (kinds[i] == rows) total += static_cast<std::size_t>(row_count(member, i));
    }
    most_rows = std::max(most_rows, total);
  }
  std::vector<std::vector<std::int32_t>> union_of(count);
  if (most_rows > 0) {
    for (std::size_t i = 0; i < count; ++i) {
      if (kinds[i] == rows) own_rows.insert(own_rows.end(), looked_up[i].begin(), looked_up[i].end());
    }
    own_rows.resize(most_rows, -1);
    const std::vector<std::int64_t> rows_of_all = communicator_.exchange(own_rows);
    for (std::size_t member = 0; member < members; ++member) {
      std::size_t next = member * most_rows;
      for (std::size_t i = 0; i < count; ++i) {
        if (kinds[i] != rows) continue;
        for (std::int64_t r = 0; r < row_count(member, i); ++r) {
          union_of[i].push_back(static_cast<std::int32_t>(rows_of_all[next++]));
        }
      }
    }
    for (auto& list : union_of) {
      std::ranges::sort(list);
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }

  // The sums, from the last parameter to the first. Copies of gradients, where needed, are made before the first sum
  // changes one.
  std::vector<std::size_t> dense;
  for (std::size_t i = count; i-- > 0;) {
    if (kinds[i] == all) dense.push_back(i);
  }
  const std::map<std::size_t, Tensor> own_dense = own_sums(dense, from);
  Buckets sums = new_sums(from);
  for (std::size_t i = count; i-- > 0;) {
    if (kinds[i] == none) continue;
    const Parameter parameter = parameters_[i];
    const Tensor sum = kinds[i] == all ? own_dense.at(i) : parameters_.gradient_of_rows(parameter, union_of[i], from);
    const std::size_t of_form = kinds[i] == all && compressed_ ? Compressed::yes : Compressed::no;
    sums.add(shards_ ? static_cast<std::size_t>(shards_->owner(i)) : of_form, {i, sum});
    if (kinds[i] == all) {
      parameters_.set_gradient(parameter, sum);
    } else {
      parameters_.set_gradient(parameter, union_of[i], sum, from);
    }
  }
  sums.push();
  if (parameters_.non_finite() == NonFinite::skip) {
    parameters_.agree_on_steps([weak = std::weak_ptr(for_checks_)](const IntTensor& element, std::source_location at) {
      const auto group = weak.lock();
      if (group) group->all_reduce(element, Combine::max, {.name = "check step", .pushed_at = at});
    });
  }
  if (shards_) shards_->note_combined();
  return samples_of_all;
}

}  // namespace windrow

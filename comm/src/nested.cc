#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "ending.h"
#include "windrow/comm/internal/member.h"
#include "windrow/comm/mpi.h"

namespace windrow {
namespace comm {

namespace {

/// Checked at all members, because only the first member of a process would be refused otherwise.
void require_countable(CallKind kind, std::span<const Tensor> tensors, const CollectiveOptions& options, Index most) {
  Index elements = 0;
  for (const Tensor& tensor : tensors) elements += tensor.rows() * tensor.width();
  comm::require_countable(kind, elements, options.part_bytes, most);
}

}  // namespace

void Nested::all_reduce(std::span<const Tensor> tensors, Combine combine, const CollectiveOptions& options) const {
  require_countable(CallKind::all_reduce, tensors, options, most_between);
  inner.reduce(tensors, 0, combine, options);
  if (outer) outer->all_reduce(tensors, combine, options);
  inner.broadcast(tensors, 0, options);
}
void Nested::all_reduce(const IntTensor& tensor, Combine combine, const CollectiveOptions& options) const {
  comm::require_countable(CallKind::all_reduce, tensor.rows() * tensor.width(), options.part_bytes, most_between);
  inner.all_reduce(tensor, combine, options);
  if (outer) outer->all_reduce(tensor, combine, options);
  inner.broadcast(tensor, 0, options);
}
/// At all members of the process: otherwise the first one would have to copy the tensor that it must not change.
template <class T>
void Nested::all_reduce(const TensorOf<T>& from, const TensorOf<T>& to, Combine combine,
                        const CollectiveOptions& options) const {
  comm::require_countable(CallKind::all_reduce, to.rows() * to.width(), options.part_bytes, most_between);
  inner.all_reduce(from, to, combine, options);
  if (outer) outer->all_reduce(to, combine, options);
  if constexpr (std::is_same_v<T, float>) {
    inner.broadcast(std::span(&to, 1), 0, options);
  } else {
    inner.broadcast(to, 0, options);
  }
}
template void Nested::all_reduce(const Tensor&, const Tensor&, Combine, const CollectiveOptions&) const;
template void Nested::all_reduce(const IntTensor&, const IntTensor&, Combine, const CollectiveOptions&) const;

namespace {

/// The process of a root.
int process_of(int root, const Nested& nested) {
  const int each = nested.inner.size(), all = nested.processes * each;
  if (root >= 0 && root < all && root % each == 0) return root / each;
  throw MisuseError("broadcast: root " + std::to_string(root) + " of a NestedGroup of " + std::to_string(all) +
                    "; expected a multiple of " + std::to_string(each) + ", the first member of a process");
}

}  // namespace

void Nested::broadcast(std::span<const Tensor> tensors, int root, const CollectiveOptions& options) const {
  require_countable(CallKind::broadcast, tensors, options, most_between);
  const int process = process_of(root, *this);
  if (outer) outer->broadcast(tensors, process, options);
  inner.broadcast(tensors, 0, options);
}
void Nested::broadcast(const IntTensor& tensor, int root, const CollectiveOptions& options) const {
  comm::require_countable(CallKind::broadcast, tensor.rows() * tensor.width(), options.part_bytes, most_between);
  const int process = process_of(root, *this);
  if (outer) outer->broadcast(tensor, process, options);
  inner.broadcast(tensor, 0, options);
}

}  // namespace comm

namespace {

using comm::Breakage;
using comm::Member;
using comm::Nested;

class NestedMember final : public Member {
 public:
  struct InProcesses {
    int process, processes;
  };
  NestedMember(Nested nested, InProcesses place) : nested_(std::move(nested)), place_(place) {}

  int rank() const override { return place_.process * nested_.inner.size() + nested_.inner.rank(); }
  int size() const override { return place_.processes * nested_.inner.size(); }
  const void* group() const override { return nested_.inner.member()->group(); }
  const Nested* nested() const override { return &nested_; }
  void take(comm::ExchangePtr part) override { part->fail({.why = "a part of a call of a nested group"}); }

  std::vector<std::int64_t> exchange(std::span<const std::int64_t> numbers) override {
    std::exception_ptr failed_here, failed_between;
    std::vector<std::int64_t> of_process;
    try {
      of_process = nested_.inner.exchange(numbers);
    } catch (const Error&) {
      failed_here = std::current_exception();
      // A count that differs from that of all processes without a failure, so that the call fails there, too.
      of_process.assign(numbers.size() * static_cast<std::size_t>(nested_.inner.size()) + 1, 0);
    } catch (...) {  // of a LookWhileWaiting
      if (nested_.outer) nested_.outer->abort("rank " + std::to_string(rank()) + " has left a wait in exchange");
      throw;
    }
    std::vector<std::int64_t> of_all;
    if (nested_.outer) {
      try {
        of_all = nested_.outer->exchange(of_process);
      } catch (...) {
        failed_between = std::current_exception();
      }
    }
    if (failed_here) std::rethrow_exception(failed_here);
    const std::size_t count = static_cast<std::size_t>(size()) * numbers.size();
    of_all.resize(count);
    of_all.push_back(failed_between ? 1 : 0);
    std::vector<std::int64_t> of_first;
    try {
      of_first = nested_.inner.exchange(of_all);
    } catch (const CommError&) {
      if (!failed_between) throw;
    }
    if (failed_between) std::rethrow_exception(failed_between);
    if (of_first[count] != 0) throw CommError("exchange: failed between the processes; member 0 of this one says why");
    of_first.resize(count);  // by the first member
    return of_first;
  }
  void break_up(const Breakage& why) override {
    nested_.inner.member()->break_up(why);
    if (nested_.outer) nested_.outer->member()->break_up(why);
  }
  void leave() override {}  // the groups' own handles end with this
  void time_calls() override {
    nested_.inner.time_calls();
    if (nested_.outer) nested_.outer->member()->time_calls_by(nested_.inner.member()->clock());
    time_calls_by(nested_.inner.member()->clock());
  }

 private:
  const Nested nested_;
  const InProcesses place_;
};

/// If the first group breaks, so does the second one.
void tie(const std::shared_ptr<Member>& first, const std::shared_ptr<Member>& second) {
  first->on_break([second = std::weak_ptr(second)](const Breakage& why) {
    if (const auto other = second.lock()) other->break_up(why);
  });
}

}  // namespace

NestedGroup::NestedGroup(const std::vector<Communicator>& inner, const Communicator& outer) {
  if (inner.empty()) throw MisuseError("NestedGroup: no inner members; expected those of this process");
  std::string wrong;
  for (std::size_t i = 0; i < inner.size() && wrong.empty(); ++i) {
    const Communicator& one = inner[i];
    const bool in_place =
        static_cast<std::size_t>(one.rank()) == i && static_cast<std::size_t>(one.size()) == inner.size();
    const bool of_group = one.member()->group() == inner.front().member()->group();
    if (in_place && of_group) continue;
    wrong = "inner member " + std::to_string(i) + " is rank " + std::to_string(one.rank()) + " of " +
            std::to_string(one.size()) + (in_place ? " in another group than member 0" : "") +
            "; expected all members of one group, by rank";
  }
  const auto counts = outer.exchange(std::vector{wrong.empty() ? static_cast<std::int64_t>(inner.size()) : 0});
  if (!wrong.empty()) throw MisuseError("NestedGroup: " + wrong);
  if (const auto bad = std::ranges::find(counts, 0); bad != counts.end()) {
    throw CommError("NestedGroup: process " + std::to_string(bad - counts.begin()) +
                    " passes inner members that are not a whole group by rank");
  }
  const auto other = std::ranges::find_if(counts, [&](std::int64_t count) { return count != counts.front(); });
  if (other != counts.end()) {
    throw CommError("NestedGroup: process 0 has " + std::to_string(counts.front()) + " members, but process " +
                    std::to_string(other - counts.begin()) + " has " + std::to_string(*other) +
                    "; expected equally many");
  }
  tie(inner.front().member(), outer.member());
  tie(outer.member(), inner.front().member());
  for (const Communicator& each : inner) {
    Nested nested{.inner = each,
                  .processes = outer.size(),
                  .most_between = outer.member()->most_elements(comm::CallKind::all_reduce)};
    if (members_.empty()) nested.outer = outer;
    members_.emplace_back(each.device(), std::make_shared<NestedMember>(
                                             std::move(nested), NestedMember::InProcesses{outer.rank(), outer.size()}));
  }
}

const Communicator& NestedGroup::operator[](int number) const {
  if (number < 0 || number >= local_size()) {
    throw MisuseError("NestedGroup: member " + std::to_string(number) + " of this process; expected one from 0 to " +
                      std::to_string(local_size() - 1));
  }
  return members_[static_cast<std::size_t>(number)];
}

}  // namespace windrow

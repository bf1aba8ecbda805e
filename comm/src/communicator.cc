#include "windrow/comm/communicator.h"

#include <utility>

#include "call_of.h"

namespace windrow {

using comm::CallOf, comm::CallKind, comm::refuse_inside, comm::Use;

std::int64_t fingerprint(std::string_view text) {
  std::uint64_t h = 14695981039346656037ull;  // FNV-1a
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return static_cast<std::int64_t>(h >> 1);
}

Communicator::Communicator(Device device, std::shared_ptr<comm::Member> member)
    : device_(std::move(device)), member_(std::move(member)) {
  presence_ = std::shared_ptr<void>(nullptr, [member = member_](void*) { member->leave(); });
}

namespace {

/// The member that takes calls which combine floats.
const std::shared_ptr<comm::Member>& taker(const std::shared_ptr<comm::Member>& member, Combine combine) {
  const auto* const other = combine == Combine::max ? member->of_maxima() : nullptr;
  return other == nullptr ? member : *other;
}

}  // namespace

int Communicator::rank() const { return member_->rank(); }
int Communicator::size() const { return member_->size(); }

void Communicator::all_reduce(std::span<const Tensor> tensors, Combine combine,
                              const CollectiveOptions& options) const {
  if (const comm::Nested* const nested = member_->nested()) return nested->all_reduce(tensors, combine, options);
  CallOf<float> call(device_, taker(member_, combine), CallKind::all_reduce, options);
  call.combine(combine);
  for (const Tensor& tensor : tensors) call.add(tensor, Use::update);
  call.push();
}
void Communicator::all_reduce(const Tensor& tensor, Combine combine, const CollectiveOptions& options) const {
  all_reduce(std::span(&tensor, 1), combine, options);
}
void Communicator::all_reduce(const IntTensor& tensor, Combine combine, const CollectiveOptions& options) const {
  if (const comm::Nested* const nested = member_->nested()) return nested->all_reduce(tensor, combine, options);
  CallOf<std::int32_t>(device_, member_, CallKind::all_reduce, options)
      .combine(combine)
      .add(tensor, Use::update)
      .push();
}
void Communicator::all_reduce(const Tensor& from, const Tensor& to, Combine combine,
                              const CollectiveOptions& options) const {
  if (const comm::Nested* const nested = member_->nested()) return nested->all_reduce(from, to, combine, options);
  CallOf<float>(device_, taker(member_, combine), CallKind::all_reduce, options)
      .combine(combine)
      .out_of_place()
      .add(from, Use::read)
      .add(to, Use::write)
      .push();
}
void Communicator::all_reduce(const IntTensor& from, const IntTensor& to, Combine combine,
                              const CollectiveOptions& options) const {
  if (const comm::Nested* const nested = member_->nested()) return nested->all_reduce(from, to, combine, options);
  CallOf<std::int32_t>(device_, member_, CallKind::all_reduce, options)
      .combine(combine)
      .out_of_place()
      .add(from, Use::read)
      .add(to, Use::write)
      .push();
}
void Communicator::reduce(std::span<const Tensor> tensors, int root, Combine combine,
                          const CollectiveOptions& options) const {
  CallOf<float> call(device_, taker(member_, combine), CallKind::reduce, options);
  call.combine(combine).peer(root);
  for (const Tensor& tensor : tensors) call.add(tensor, root == rank() ? Use::update : Use::read);
  call.push();
}
void Communicator::broadcast(std::span<const Tensor> tensors, int root, const CollectiveOptions& options) const {
  if (const comm::Nested* const nested = member_->nested()) return nested->broadcast(tensors, root, options);
  CallOf<float> call(device_, member_, CallKind::broadcast, options);
  call.peer(root);
  for (const Tensor& tensor : tensors) call.add(tensor, root == rank() ? Use::read : Use::write);
  call.push();
}
void Communicator::broadcast(const IntTensor& tensor, int root, const CollectiveOptions& options) const {
  if (const comm::Nested* const nested = member_->nested()) return nested->broadcast(tensor, root, options);
  CallOf<std::int32_t>(device_, member_, CallKind::broadcast, options)
      .peer(root)
      .add(tensor, root == rank() ? Use::read : Use::write)
      .push();
}
void Communicator::all_gather(const Tensor& from, const Tensor& to, const CollectiveOptions& options) const {
  CallOf<float>(device_, member_, CallKind::all_gather, options)
      .add(from, Use::read)
      .add(to, Use::write, size())
      .push();
}
void Communicator::all_gather(const IntTensor& from, const IntTensor& to, const CollectiveOptions& options) const {
  CallOf<std::int32_t>(device_, member_, CallKind::all_gather, options)
      .add(from, Use::read)
      .add(to, Use::write, size())
      .push();
}
void Communicator::reduce_scatter(const Tensor& from, const Tensor& to, Combine combine,
                                  const CollectiveOptions& options) const {
  CallOf<float>(device_, taker(member_, combine), CallKind::reduce_scatter, options)
      .combine(combine)
      .add(from, Use::read, size())
      .add(to, Use::write)
      .push();
}
void Communicator::all_to_all(const Tensor& from, const Tensor& to, const CollectiveOptions& options) const {
  CallOf<float>(device_, member_, CallKind::all_to_all, options)
      .add(from, Use::read, size())
      .add(to, Use::write, size())
      .push();
}
void Communicator::send(const Tensor& tensor, int to, const CollectiveOptions& options) const {
  CallOf<float>(device_, member_, CallKind::send, options).peer(to).add(tensor, Use::read).push();
}
void Communicator::recv(const Tensor& tensor, int from, const CollectiveOptions& options) const {
  CallOf<float>(device_, member_, CallKind::recv, options).peer(from).add(tensor, Use::write).push();
}

std::vector<std::int64_t> Communicator::exchange(std::span<const std::int64_t> numbers) const {
  refuse_inside(*device_.engine, "exchange");
  return member_->exchange(numbers);
}
void Communicator::barrier() const {
  refuse_inside(*device_.engine, "barrier");
  std::exception_ptr failure;
  try {
    device_.engine->wait_all();
  } catch (const Error&) {
    failure = std::current_exception();  // so that the others do not wait in vain
  } catch (...) {                        // of a LookWhileWaiting
    abort("rank " + std::to_string(rank()) + " has left a wait for its ops in barrier");
    throw;
  }
  member_->exchange({});
  if (failure) std::rethrow_exception(failure);
}
void Communicator::time_calls() const { member_->time_calls(); }
std::chrono::nanoseconds Communicator::time_in_calls() const {
  return member_->clock() ? member_->clock()->total() : std::chrono::nanoseconds(0);
}
void Communicator::abort(const std::string& why) const {
  member_->break_up({.why = why.empty() ? "rank " + std::to_string(rank()) + " has called abort()" : why,
                     .reported_by = comm::ReportedBy::aborter});
}

}  // namespace windrow

#include "compression.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace windrow {
namespace {

/// The nearest number of 16 bits, ties to even; NaN stays NaN.
std::uint16_t rounded(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float widened(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

/// The part of a number that rounding removes. 0 for one that is not finite, because its step fails.
float lost(float x, float sent) { return std::isfinite(x) && std::isfinite(sent) ? x - sent : 0; }

Tensor zeros(const Device& device, Index elements) {
  const Tensor tensor(device, 1, elements);  // in one row, which has no gaps
  tensor.set(std::vector<float>(static_cast<std::size_t>(elements), 0));
  return tensor;
}

Index elements(const Tensor& tensor) { return tensor.rows() * tensor.width(); }

/// Calls body(position, element) for all elements of a view, in the order of rows.
template <class T, class Body>
void each(const Matrix<T>& m, const Body& body) {
  std::size_t position = 0;
  for (Index r = 0; r < m.rows; ++r) {
    T* const row = m.row(r);
    for (Index j = 0; j < m.width; ++j) body(position++, row[j]);
  }
}

/// The memory of a tensor that sends other types than floats: members copy its bytes.
template <class T>
T* carried(const Matrix<float>& m) {
  return reinterpret_cast<T*>(m.data);
}
template <class T>
const T* carried(const Matrix<const float>& m) {
  return reinterpret_cast<const T*>(m.data);
}

}  // namespace

CompressedSums::CompressedSums(const Communicator& communicator, const Compression& compression)
    : communicator_(communicator) {
  const auto refuse = [](const std::string& what) { throw MisuseError("DataParallelOptions.compression: " + what); };
  if (compression.form != Compression::Form::bfloat16) {
    refuse("form " + std::to_string(static_cast<int>(compression.form)) + "; expected none or bfloat16");
  }
  if (!communicator.device().on_host()) {
    refuse("gradients in the memory of " + communicator.device().name + "; expected a device that shares the host's");
  }
}

const Tensor& CompressedSums::rest_of(const OfParameter& part) {
  const auto place = rests_.find(part.parameter);
  if (place != rests_.end()) return place->second;
  return rests_.emplace(part.parameter, zeros(communicator_.device(), elements(part.tensor))).first->second;
}

void CompressedSums::keep(const Tensor& rest, const CollectiveOptions& options) const {
  communicator_.device().engine->heal(rest.var(), {.name = "keep the rest", .pushed_at = options.pushed_at});
}

/// Each member rounds its gradients and sends block r of them to member r. Member r adds up these blocks in the order
/// of ranks, rounds the sum, and sends it to all. It adds the part that rounding the sum removes to its own rest,
/// because in the next step with this parameter the element may belong to another member.
void CompressedSums::push(const Buckets::Parts& parts, const CollectiveOptions& options) {
  const Device& device = communicator_.device();
  Engine& engine = *device.engine;
  const int members = communicator_.size();
  std::size_t all = 0;
  for (const OfParameter& part : parts) all += static_cast<std::size_t>(elements(part.tensor));
  // Two of 16 bits in the place of one float. Tensors of width 1 have no gaps between rows.
  const std::size_t a_row = 2 * static_cast<std::size_t>(members);
  const auto block = static_cast<Index>((all + a_row - 1) / a_row);
  const Tensor sent(device, members * block, 1, "rounded"), got(device, members * block, 1, "rounded"),
      sum(device, block, 1, "rounded"), sums(device, members * block, 1, "rounded");
  const PushOptions push{
      .name = "round gradients", .priority = options.priority, .lane = device.lane, .pushed_at = options.pushed_at};

  std::vector<Access> accesses = {sent.write_access()};
  struct Source {
    Tensor::View gradient, rest;
  };
  std::vector<Source> sources;
  for (const OfParameter& part : parts) {
    const Tensor& rest = rest_of(part);
    accesses.push_back(read(part.tensor.var()));
    accesses.push_back(mutate(rest.var()));
    sources.push_back({part.tensor.view(), rest.view()});
  }
  engine.push(
      [sources, to = sent.view()] {
        const Matrix<float> m = to.write();
        auto* next = carried<std::uint16_t>(m);
        auto* const end = next + 2 * m.rows;
        for (const Source& source : sources) {
          float* rest = source.rest.update().data;
          each(source.gradient.read(), [&](std::size_t i, float g) {
            const float x = g + rest[i];
            const std::uint16_t r = rounded(x);
            rest[i] = lost(x, widened(r));
            *next++ = r;
          });
        }
        std::fill(next, end, std::uint16_t{0});
      },
      accesses, push);
  for (const OfParameter& part : parts) keep(rest_of(part), options);
  communicator_.all_to_all(sent, got, options);
  // Where the rests of this member's sums go: elements [begin, end) of its block, from element `first` of `rest` on.
  struct Owed {
    Tensor::View rest;
    Index first, begin, end;
  };
  std::vector<Owed> owed;
  const Index own_begin = 2 * block * communicator_.rank(), own_end = own_begin + 2 * block;
  const Tensor totals(device, 2 * block, 1, "sums");
  accesses = {read(got.var()), totals.write_access(), sum.write_access()};
  Index at = 0;
  for (const OfParameter& part : parts) {
    const Index begin = std::max(at, own_begin), end = std::min(at + elements(part.tensor), own_end);
    if (begin < end) {
      owed.push_back({rest_of(part).view(), begin - at, begin - own_begin, end - own_begin});
      accesses.push_back(mutate(rest_of(part).var()));
    }
    at += elements(part.tensor);
  }
  engine.push(
      [from = got.view(), to = sum.view(), of_totals = totals.view(), owed, members] {
        const auto* next = carried<std::uint16_t>(from.read());
        const Matrix<float> m = to.write();
        auto* const result = carried<std::uint16_t>(m);
        const std::span total(of_totals.write().data, static_cast<std::size_t>(2 * m.rows));
        std::ranges::fill(total, 0.0f);
        for (int rank = 0; rank < members; ++rank) {
          for (float& x : total) x += widened(*next++);
        }
        for (std::size_t i = 0; i < total.size(); ++i) {
          result[i] = rounded(total[i]);
          total[i] = lost(total[i], widened(result[i]));
        }
        for (const Owed& one : owed) {
          float* rest = one.rest.update().data + one.first;
          for (Index i = one.begin; i < one.end; ++i) *rest++ += total[static_cast<std::size_t>(i)];
        }
      },
      accesses, push);
  for (const OfParameter& part : parts) keep(rest_of(part), options);
  communicator_.all_gather(sum, sums, options);
  accesses = {read(sums.var())};
  std::vector<Tensor::View> targets;
  for (const OfParameter& part : parts) {
    accesses.push_back(part.tensor.write_access());
    targets.push_back(part.tensor.view());
  }
  engine.push(
      [targets, from = sums.view()] {
        const auto* next = carried<std::uint16_t>(from.read());
        for (const Tensor::View& target : targets)
          each(target.write(), [&](std::size_t, float& g) { g = widened(*next++); });
      },
      accesses, push);
}

}  // namespace windrow

#include "tests/comm/contract.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "windrow/comm/internal/member.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/operators.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

bool is_nested(const Communicator& member) { return member.member()->nested() != nullptr; }

/// All members' values of one tensor, by rank.
using Values = std::vector<Floats>;

struct Shape {
  Index rows, width;
  std::size_t count() const { return static_cast<std::size_t>(rows * width); }
};

Floats combined(const Values& values, Combine how) {
  Floats result = values[0];
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = how == Combine::max ? std::max(result[i], values[rank][i]) : result[i] + values[rank][i];
    }
  }
  if (how == Combine::mean) {
    for (float& x : result) x *= 1.0f / static_cast<float>(values.size());
  }
  return result;
}

/// Keeps values small, so that sums stay exact: element by element max(-8, min(8, x)), rounded to whole numbers.
void limit(Values& values) {
  for (Floats& of_rank : values) {
    for (float& x : of_rank) x = std::clamp(std::round(x), -8.0f, 8.0f);
  }
}

}  // namespace

std::function<void()> push_random_collectives(const Communicator& member, unsigned seed, int calls) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const auto ranks = static_cast<std::size_t>(member.size());
  const auto rank = static_cast<std::size_t>(member.rank());
  const auto n = static_cast<Index>(ranks);

  // Tensors come in pairs of equal size: blocks of `small`, and of all members.
  const Shape shapes[] = {{1, 1}, {3, 5}, {2, 64}, {0, 4}, {7, 300}};
  std::vector<Tensor> small, large;
  std::vector<Values> small_values, large_values;
  for (const Shape& shape : shapes) {
    for (const bool whole : {false, true}) {
      const Shape own{whole ? shape.rows * n : shape.rows, shape.width};
      Values values(ranks, Floats(own.count()));
      for (Floats& of_rank : values) {
        for (float& x : of_rank) x = static_cast<float>(below(17)) - 8;
      }
      const Tensor tensor(member.device(), own.rows, own.width);
      tensor.set(values[rank]);
      (whole ? large : small).push_back(tensor);
      (whole ? large_values : small_values).push_back(std::move(values));
    }
  }

  std::vector<std::pair<Tensor, Floats>> read;  // and never written again

  const auto clamp = [&](const Tensor& tensor, Values& values) {
    limit(values);
    tensor.set(values[rank]);
  };
  for (int call = 0; call < calls; ++call) {
    const std::size_t i = below(std::size(shapes));
    const auto how = static_cast<Combine>(below(3));
    const int root = static_cast<int>(below(ranks));
    const CollectiveOptions options{
        .name = "random", .priority = static_cast<int>(below(3)), .part_bytes = 4 * below(2) * (1 + below(200))};
    Values &one = small_values[i], &all = large_values[i];
    const std::size_t block = shapes[i].count();
    switch (below(9)) {
      case 0: {
        member.all_reduce(small[i], how, options);
        one.assign(ranks, combined(one, how));
        clamp(small[i], one);
        break;
      }
      case 1: {  // one call for several tensors
        const std::size_t j = (i + 1) % std::size(shapes);
        member.all_reduce(std::vector<Tensor>{large[i], small[j]}, how, options);
        all.assign(ranks, combined(all, how));
        small_values[j].assign(ranks, combined(small_values[j], how));
        clamp(large[i], all);
        clamp(small[j], small_values[j]);
        break;
      }
      case 2: {
        member.reduce(std::span(&small[i], 1), root, how, options);
        one[static_cast<std::size_t>(root)] = combined(one, how);
        clamp(small[i], one);
        break;
      }
      case 3: {
        member.broadcast(std::span(&large[i], 1), root, options);
        const Floats from = all[static_cast<std::size_t>(root)];
        all.assign(ranks, from);
        break;
      }
      case 4: {
        member.all_gather(small[i], large[i], options);
        Floats gathered;
        for (const Floats& of_rank : one) gathered.insert(gathered.end(), of_rank.begin(), of_rank.end());
        all.assign(ranks, gathered);
        break;
      }
      case 5: {
        member.reduce_scatter(large[i], small[i], how, options);
        const Floats sum = combined(all, how);
        for (std::size_t r = 0; r < ranks; ++r) {
          const auto begin = sum.begin() + static_cast<std::ptrdiff_t>(r * block);
          one[r].assign(begin, begin + static_cast<std::ptrdiff_t>(block));
        }
        clamp(small[i], one);
        break;
      }
      case 6: {
        const Tensor to(member.device(), large[i].rows(), large[i].width());
        member.all_to_all(large[i], to, options);
        Values exchanged = all;
        for (std::size_t r = 0; r < ranks; ++r) {
          for (std::size_t from = 0; from < ranks; ++from) {
            std::copy_n(all[from].begin() + static_cast<std::ptrdiff_t>(r * block), block,
                        exchanged[r].begin() + static_cast<std::ptrdiff_t>(from * block));
          }
        }
        large[i] = to;
        all = std::move(exchanged);
        break;
      }
      case 7: {
        const Tensor to(member.device(), shapes[i].rows, shapes[i].width);
        member.all_reduce(small[i], to, how, options);
        read.emplace_back(small[i], one[rank]);
        small[i] = to;
        one.assign(ranks, combined(one, how));
        clamp(small[i], one);
        break;
      }
      default: {
        const std::size_t from = below(ranks), to = below(ranks);
        if (from == to) break;
        if (rank == from) member.send(small[i], static_cast<int>(to), options);
        if (rank == to) member.recv(small[i], static_cast<int>(from), options);
        one[to] = one[from];
        break;
      }
    }
  }

  return [small, large, small_values, large_values, read, rank, seed] {
    for (const auto& [tensor, values] : read) {
      if (tensor.rows() == 0) continue;
      EXPECT_EQ(tensor.get(), values) << "seed " << seed << ", rank " << rank;
    }
    for (std::size_t i = 0; i < small.size(); ++i) {
      if (small[i].rows() == 0) continue;
      EXPECT_EQ(small[i].get(), small_values[i][rank]) << "seed " << seed << ", rank " << rank << ", tensor " << i;
      EXPECT_EQ(large[i].get(), large_values[i][rank]) << "seed " << seed << ", rank " << rank << ", tensor " << i;
    }
  };
}

namespace {

/// Element i of what a member passes.
float number_or_nan(int rank, std::size_t i) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::size_t which = i * 7 + static_cast<std::size_t>(rank) * 13;
  if (which % 9 == 2) return std::numeric_limits<float>::quiet_NaN();
  if (which % 11 == 3) return which % 2 == 0 ? infinity : -infinity;
  return static_cast<float>(which % 31) - 15;
}
float largest_or_nan(int members, std::size_t i) {
  float top = number_or_nan(0, i);
  for (int rank = 1; rank < members; ++rank) {
    const float next = number_or_nan(rank, i);
    if (std::isnan(next) || next > top) top = next;
  }
  return top;
}
void expect_largest(const Tensor& tensor, int members, std::size_t first, const std::string& what) {
  const std::vector<float> values = tensor.get();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float expected = largest_or_nan(members, first + i);
    ASSERT_TRUE(std::isnan(expected) ? std::isnan(values[i]) : values[i] == expected)
        << what << ", element " << i << " of " << values.size() << " is " << values[i] << ", expected " << expected;
  }
}

}  // namespace

std::function<void()> push_maxima_of_nan(const Communicator& member) {
  const int members = member.size(), rank = member.rank();
  struct One {
    Tensor tensor;
    std::size_t first;
    std::string what;
  };
  std::vector<One> all;
  const auto drawn = [&](Index rows, Index width) {
    const Tensor tensor(member.device(), rows, width);
    std::vector<float> values(static_cast<std::size_t>(rows * width));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = number_or_nan(rank, i);
    tensor.set(values);
    return tensor;
  };
  for (const Index width : {1, 3, 7, 8, 17, 100, 1000, 1025, 5000, 70000}) {
    all.push_back({drawn(1, width), 0, "all_reduce"});
    member.all_reduce(all.back().tensor, Combine::max);
    all.push_back({drawn(1, width), 0, "all_reduce in parts"});
    member.all_reduce(all.back().tensor, Combine::max, {.priority = 1, .part_bytes = 4000});
    if (is_nested(member)) continue;
    const Tensor reduced = drawn(1, width);
    member.reduce(std::span(&reduced, 1), members - 1, Combine::max);
    if (rank == members - 1) all.push_back({reduced, 0, "reduce"});
    const Tensor whole = drawn(members, width), block(member.device(), 1, width);
    member.reduce_scatter(whole, block, Combine::max);
    all.push_back({block, static_cast<std::size_t>(rank * width), "reduce_scatter"});
  }
  return [all, members] {
    for (const One& one : all) expect_largest(one.tensor, members, one.first, one.what);
  };
}
namespace {

void exchanges_numbers(const Communicator& member) {
  for (const std::int64_t count : {0, 1, 15, 16, 1000}) {
    std::vector<std::int64_t> numbers, expected;
    for (std::int64_t i = 0; i < count; ++i) numbers.push_back(i * 1000 + member.rank());
    for (int rank = 0; rank < member.size(); ++rank) {
      for (std::int64_t i = 0; i < count; ++i) expected.push_back(i * 1000 + rank);
    }
    EXPECT_EQ(member.exchange(numbers), expected);
  }
  if (member.size() > 1) {
    EXPECT_THROW(member.exchange(std::vector<std::int64_t>(static_cast<std::size_t>(member.rank()))), CommError);
  }
  member.barrier();
}

void combines_whole_numbers(const Communicator& member) {
  const std::int32_t rank = member.rank(), last = member.size() - 1;
  const IntTensor counts(member.device(), 1, 2), all(member.device(), member.size(), 2);
  counts.set({rank, -rank});
  member.all_reduce(counts, Combine::max);
  EXPECT_EQ(counts.get(), (std::vector<std::int32_t>{last, 0}));
  EXPECT_THROW(member.all_reduce(counts, Combine::mean), MisuseError);
  if (is_nested(member)) return;
  counts.set({rank, -rank});
  member.all_gather(counts, all);
  std::vector<std::int32_t> expected;
  for (std::int32_t each = 0; each <= last; ++each) expected.insert(expected.end(), {each, -each});
  EXPECT_EQ(all.get(), expected);
}

void leaves_what_a_sum_out_of_place_reads(const Communicator& member) {
  const Device& device = member.device();
  const auto sum = static_cast<float>(member.size() * (member.size() + 1) / 2);
  const auto own = static_cast<float>(member.rank() + 1);
  for (const Index width : {3, 3000}) {
    for (const CollectiveOptions& options :
         {CollectiveOptions{}, CollectiveOptions{.priority = 1, .part_bytes = 400}}) {
      for (const auto& [reads_view, writes_view] :
           {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
        const Tensor from = filled(device, 4, 2 * width, own), to = filled(device, 4, 2 * width, -1);
        const Tensor dense_from = filled(device, 4, width, own), dense_to = filled(device, 4, width, -1);
        const Tensor source = reads_view ? from.column_range(width, 2 * width) : dense_from;
        const Tensor target = writes_view ? to.column_range(width, 2 * width) : dense_to;
        member.all_reduce(source, target, Combine::sum, options);
        const auto count = static_cast<std::size_t>(4 * width);
        EXPECT_EQ(target.get(), Floats(count, sum));
        EXPECT_EQ(source.get(), Floats(count, own));
        EXPECT_EQ(to.column_range(0, width).get(), Floats(count, -1));
      }
    }
  }
  const IntTensor from(device, 1, 2), to(device, 1, 2);
  from.set({member.rank(), -member.rank()});
  member.all_reduce(from, to, Combine::max);
  EXPECT_EQ(to.get(), (std::vector<std::int32_t>{member.size() - 1, 0}));
  EXPECT_EQ(from.get(), (std::vector<std::int32_t>{member.rank(), -member.rank()}));
  EXPECT_THROW(member.all_reduce(from, from), MisuseError);
  if (member.size() < 2 || is_nested(member)) return;
  const Tensor x = filled(device, 1, 2, 1), y = filled(device, 1, 2, 1);
  member.rank() == 0 ? member.all_reduce(x) : member.all_reduce(y, x);
  expect_error_of(x, "all_reduce (sum of float32 1 x 2, out of place)");
}

void crosses_messages_and_collectives(const Communicator& member) {
  if (member.size() < 2 || is_nested(member)) return;
  const Tensor x = filled(member.device(), 2, 3, static_cast<float>(member.rank() + 1)), to(member.device(), 2, 3);
  const Tensor y = filled(member.device(), 2, 3, 10);
  if (member.rank() == 0) member.all_reduce(y);
  if (member.rank() < 2) {
    member.send(x, 1 - member.rank());
    member.recv(to, 1 - member.rank());
    EXPECT_EQ(member.rank() == 0 ? Floats(6, 2) : Floats(6, 1), to.get());
  }
  if (member.rank() > 0) member.all_reduce(member.rank() == 1 ? to : y);  // of what the message brings
  EXPECT_EQ((member.rank() == 1 ? to : y).get(), Floats(6, static_cast<float>(10 * (member.size() - 1) + 1)));
}

void fails_with_an_operand(const Communicator& member) {
  const int last = member.size() - 1;
  const auto size = static_cast<float>(member.size());
  const Tensor bad = filled(member.device(), 2, 2, 1), good = filled(member.device(), 2, 2, 1);
  if (member.rank() == last) {
    member.device().engine->push([] { throw std::runtime_error("no gradient today"); }, {mutate(bad.var())},
                                 {.name = "sad"});
  }
  member.all_reduce(bad, Combine::sum, {.name = "gradients"});
  member.all_reduce(good);
  const std::string text = error_of(bad);
  EXPECT_TRUE(is_nested(member) || text.find("rank " + std::to_string(last)) != text.npos) << text;
  EXPECT_NE(text.find("no gradient today"), text.npos) << text;
  EXPECT_EQ(good.get(), Floats(4, size));
  bad.set(Floats(4, 1));  // heals
  member.all_reduce(bad);
  EXPECT_EQ(bad.get(), Floats(4, size));
}

void fails_with_a_message(const Communicator& member) {
  if (member.size() < 2 || is_nested(member) || member.rank() > 1) return;
  const bool sends = member.rank() == 0;
  const Tensor bad = filled(member.device(), 2, 3, 1), good = filled(member.device(), 2, 4, sends ? 5 : 1);
  if (sends) member.device().engine->push([] { throw std::runtime_error("no state today"); }, {mutate(bad.var())});
  for (const Tensor& tensor : {bad, good}) sends ? member.send(tensor, 1) : member.recv(tensor, 0);
  expect_error_of(bad, "no state today");
  EXPECT_EQ(good.get(), Floats(8, 5));
}

void names_calls_that_differ(const Communicator& member) {
  if (member.size() < 2 || is_nested(member)) return;
  const bool first = member.rank() == 0;
  const Tensor x = filled(member.device(), 2, first ? 3 : 4, 1), good = filled(member.device(), 1, 1, 1);
  member.all_reduce(x, Combine::sum, {.name = OpName(std::string(first ? "left" : "right"))});
  expect_error_of(x, "'left' (sum of float32 2 x 3)");
  if (first) {
    expect_error_of(x, "'right' (sum of float32 2 x 4)");
  }
  member.all_reduce(good, Combine::max);  // the others go on
  EXPECT_EQ(good.get(), Floats{1});
  if (member.rank() > 1) return;
  const Tensor message = filled(member.device(), 2, first ? 2 : 3, 1);
  first ? member.send(message, 1) : member.recv(message, 0);
  if (first) return;
  for (const char* const end : {"send (float32 2 x 2, to rank 1)", "recv (float32 2 x 3, from rank 0)"}) {
    expect_error_of(message, end);
  }
}

}  // namespace

Fails how_fails(const Tensor& tensor) {
  try {
    try {
      tensor.get();
      return Fails::no;
    } catch (const OpError& error) {
      error.rethrow_root();
    }
  } catch (const AbortError&) {
    return Fails::by_abort;
  } catch (const PeerError&) {
    return Fails::told;
  } catch (const CommError&) {
    return Fails::here;
  }
}

void expect_contract(const Communicator& member) {
  SCOPED_TRACE("rank " + std::to_string(member.rank()));
  exchanges_numbers(member);
  combines_whole_numbers(member);
  leaves_what_a_sum_out_of_place_reads(member);
  push_maxima_of_nan(member)();
  crosses_messages_and_collectives(member);
  fails_with_an_operand(member);
  fails_with_a_message(member);
  names_calls_that_differ(member);
}

}  // namespace windrow::testing

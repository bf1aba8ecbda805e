#include "tests/comm/contract.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/comm/random_collectives.h"
#include "windrow/comm/internal/member.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

bool is_nested(const Communicator& member) { return member.member()->nested() != nullptr; }

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
  push_maxima_of_nan(member)();
  crosses_messages_and_collectives(member);
  fails_with_an_operand(member);
  fails_with_a_message(member);
  names_calls_that_differ(member);
}

}  // namespace windrow::testing

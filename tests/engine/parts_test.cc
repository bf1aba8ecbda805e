#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <stdexcept>

#include "engine/src/record/ports.h"
#include "support.h"
#include "windrow/engine/internal/function.h"
#include "windrow/engine/reduction.h"
#include "windrow/engine/var.h"

namespace windrow::testing {
namespace {

/// Too large for the inside of a Function.
template <std::size_t bytes>
using LargeOf = std::array<std::byte, bytes>;
using Large = LargeOf<300>;

/// The address of a large callable that ends here.
template <class Captures = Large>
const void* address_of_large() {
  Function<const void*()> f = [large = Captures()] { return static_cast<const void*>(&large); };
  return f();
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(Function, UsesMemoryAgain) {
  struct Fails {
    Large large;
    Fails() = default;
    Fails(const Fails&) { throw std::runtime_error("no copy"); }
    void operator()() const {}
  };
  const void* const first = address_of_large();
  EXPECT_EQ(address_of_large(), first);
  const Fails fails{};
  EXPECT_THROW(Function<void()>{fails}, std::runtime_error);
  EXPECT_EQ(address_of_large(), first) << "also that of a callable that could not be made";
}

TEST(Function, TakesMemoryThatOtherThreadsHaveFreed) {
  // Far more at a time than a thread keeps. Each thread makes what the next one destroys.
  constexpr std::size_t count = 1000;
  std::set<const void*> places;
  std::vector<Function<const void*()>> made;
  for (int round = 0; round < 20; ++round) {
    std::vector<Function<const void*()>> next;
    std::thread([&] {
      made.clear();
      for (std::size_t i = 0; i < count; ++i) {
        next.emplace_back([large = Large()] { return static_cast<const void*>(&large); });
      }
    }).join();
    for (auto& f : next) places.insert(f());
    made = std::move(next);
  }
  EXPECT_LE(places.size(), count + 100);
}
#endif

TEST(Function, KeepsApartWhatThreadsMakeAtOnce) {
  // Threads pass what they make to each other through a few places; each checks what it takes out.
  constexpr int threads = 4, rounds = 20000;
  std::array<std::mutex, 8> mutexes;
  std::array<Function<bool()>, 8> passed;
  std::atomic<int> wrong{0};
  const auto run = [&](std::uint32_t seed) {
    for (int round = 0; round < rounds; ++round) {
      seed = seed * 1664525 + 1013904223;
      std::array<std::uint32_t, 40> numbers;
      numbers.fill(seed);
      Function<bool()> f = [numbers] { return std::ranges::count(numbers, numbers.front()) == 40; };
      {
        const std::lock_guard lock(mutexes[seed >> 29]);
        std::swap(f, passed[seed >> 29]);
      }
      if (f && !f()) ++wrong;
    }
  };
  {
    std::vector<std::jthread> all;
    for (std::uint32_t i = 0; i < threads; ++i) all.emplace_back(run, i);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Function, HoldsCallablesOfAnySizeAndAlignment) {
  struct alignas(256) Aligned {
    std::byte bytes[256];
  };
  const auto misplaced = [](auto callable, std::size_t alignment) {
    Function<std::uintptr_t()> f = [callable] { return reinterpret_cast<std::uintptr_t>(&callable); };
    return f() % alignment;
  };
  EXPECT_EQ(misplaced(Aligned(), 256), 0u);
  EXPECT_EQ(misplaced(std::array<double, 128>(), 64), 0u);
  EXPECT_EQ(misplaced(std::array<double, 129>(), 64), 0u);
  EXPECT_EQ(misplaced(std::array<double, 100000>(), 64), 0u);
}

#if !defined(__SANITIZE_ADDRESS__)
/// Destroyed behind what its thread keeps, since it is made first.
struct EndsLast {
  using Captures = LargeOf<900>;  // of a size that no other test uses
  std::set<const void*>* places = nullptr;
  Function<const void*()> f;
  ~EndsLast() {
    f = nullptr;
    places->insert(address_of_large<Captures>());
  }
};

TEST(Function, MayEndBehindWhatItsThreadKeeps) {
  std::set<const void*> places;
  for (int i = 0; i < 1000; ++i) {
    std::thread([&places] {
      thread_local EndsLast last;
      last.places = &places;
      last.f = [large = EndsLast::Captures()] { return static_cast<const void*>(&large); };
      places.insert(last.f());
    }).join();
  }
  EXPECT_LE(places.size(), 64u) << "since threads that end give their memory to others";
}
#endif

// Names of ops and variables, from whatever text there is.

TEST(OpNames, AreMadeOfAnyText) {
  const char* const pointer = "pointer";
  char array[8] = "array";
  char* const to_array = array;
  const std::string text = "text";
  EXPECT_EQ(OpName(pointer).text(), "pointer");
  EXPECT_EQ(OpName(to_array).text(), "array");
  EXPECT_EQ(OpName(array).text(), "array");
  EXPECT_EQ(OpName(text.c_str()).text(), "text");
  EXPECT_EQ(OpName(text).text(), "text");
  EXPECT_EQ(OpName(std::string_view(text)).text(), "text");
  EXPECT_EQ(OpName("literal").text(), "literal");
  EXPECT_EQ(OpName(static_cast<const char*>(nullptr)).text(), "");
}

TEST(OpNames, OfVariablesPassThroughForwardingFunctions) {
  Engine engine({.check = true});
  const auto make = [&](auto&&... name) { return engine.new_var(std::forward<decltype(name)>(name)...); };
  const char array[] = "array";
  int x = 0;
  for (const Var var : {make("literal"), std::bind(make, "bound")(), make(array), make(std::string("text")),
                        make(OpName("kept")), make()}) {
    engine.watch(var, std::as_writable_bytes(std::span(&x, 1)));
  }
  engine.push([&] { ++x; }, {}, {.name = "sly"});
  expect_error<OpError>([&] { engine.wait_all(); },
                        {"'literal'", "'bound'", "'array'", "'text'", "'kept'", "variable ''"});
  std::list<Reduction<int>> sums;
  sums.emplace_back(engine, 0, std::plus<int>(), ReductionOptions{.name = "sum"});
  EXPECT_NE(std::make_unique<Reduction<int>>(engine, 1), nullptr);
}

TEST(OpNames, OutliveTextThatIsNoLiteral) {
  char array[8] = "before";
  const OpName name(array), of_pointer(static_cast<const char*>(array));
  array[0] = 'x';
  EXPECT_EQ(name.text(), "before");
  EXPECT_EQ(of_pointer.text(), "before");
  EXPECT_EQ(std::string(name.c_str()), "before");
}

static_assert([] {
  constexpr OpName name("literal");
  return name.text().size();
}() == 7);

// Threads' own ends of an engine: taken with the first use, given back with the thread.

/// Uses an engine as its thread ends.
struct UsesAtItsEnd {
  Ports* ports = nullptr;
  ~UsesAtItsEnd() {
    if (ports != nullptr) ports->mine();
  }
};

int count(const Ports& ports) {
  int ports_there_are = 0;
  for (const Port* port = ports.first(); port != nullptr; port = port->next) ++ports_there_are;
  return ports_there_are;
}

constexpr std::uint32_t no_engine = ~std::uint32_t{0};

TEST(PortsTest, AreGivenBackByThreadsThatUseThemInThreadLocalDestructors) {
  Ports ports(no_engine);
  for (const bool used_before : {true, false}) {
    const auto use_late = [&] {
      thread_local UsesAtItsEnd late;
      late.ports = &ports;
      if (used_before) ports.mine();
    };
    for (int i = 0; i < 20; ++i) {
      std::thread(use_late).join();
      ports.start_thread(use_late).join();  // as the engine starts them
    }
  }
  EXPECT_EQ(count(ports), 1);
}

TEST(PortsTest, NoThreadNumbersItsOpsLikeWaits) {
  for (const std::uint32_t thread : {0u, 1u, 0xfffeu, 0xffffu, 0x10000u, 0x1fffeu, 0xffffffffu}) {
    EXPECT_LT(OpRecord::first_id(thread), OpRecord::first_wait_id) << thread;
  }
  EXPECT_EQ(OpRecord::first_id(0), 0u);
  EXPECT_NE(OpRecord::first_id(0xfffe), OpRecord::first_id(0));
}

}  // namespace
}  // namespace windrow::testing

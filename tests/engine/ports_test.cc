// Threads' own ends of an engine: taken with the first use, given back with the thread.
#include "engine/src/record/ports.h"

#include <thread>

#include "support.h"

namespace windrow::testing {
namespace {

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
    for (int i = 0; i < 20; ++i) {
      std::thread([&] {
        thread_local UsesAtItsEnd late;
        late.ports = &ports;
        if (used_before) ports.mine();
      }).join();
    }
  }
  EXPECT_EQ(count(ports), 1);
}

TEST(PortsTest, OfThreadsThatTheEngineStartsAreGivenBackToo) {
  Ports ports(no_engine);
  for (int i = 0; i < 20; ++i) {
    ports
        .start_thread([&] {
          thread_local UsesAtItsEnd late;
          late.ports = &ports;
        })
        .join();
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

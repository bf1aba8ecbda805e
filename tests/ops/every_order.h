// A fixture for tests of recordings that run with every policy, and replay in every order.
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "tests/engine/support.h"
#include "tests/ops/mlp.h"
#include "windrow/ops/apply.h"

namespace windrow::testing {

class InEveryOrder : public ::testing::TestWithParam<std::tuple<testing::Setup, StaticOptions::Order>> {
 protected:
  static int workers() { return std::get<testing::Setup>(GetParam()).workers; }

  Engine engine{{.policy = std::get<testing::Setup>(GetParam()).policy, .workers = workers()}};
  const Device host = host_device(engine);

  Static recorded(Static::Body body, StaticOptions options = {}) const {
    options.order = std::get<StaticOptions::Order>(GetParam());
    return {host, std::move(body), options};
  }
};

}  // namespace windrow::testing

#define WINDROW_EVERY_ORDER(fixture)                                                              \
  INSTANTIATE_TEST_SUITE_P(All, fixture,                                                          \
                           ::testing::Combine(::testing::ValuesIn(windrow::testing::every_setup), \
                                              ::testing::ValuesIn(windrow::testing::every_order)))

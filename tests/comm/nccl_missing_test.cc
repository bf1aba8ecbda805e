// Groups by NCCL where there is no plug-in for it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "windrow/comm/nccl.h"

namespace windrow::testing {
namespace {

const bool has_no_plug_in = ::setenv("WINDROW_NCCL_PLUGIN", "/nowhere/windrow_nccl.so", 1) == 0;

TEST(NcclGroup, SaysInOneLineThatThereIsNoPlugIn) {
  ASSERT_TRUE(has_no_plug_in);
  const std::string why = NcclGroup::unavailable();
  EXPECT_TRUE(why.starts_with("NCCL cannot be used: ")) << why;
  EXPECT_NE(why.find("/nowhere/windrow_nccl.so"), std::string::npos) << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  Engine engine({.workers = 1});
  EXPECT_THROW(NcclGroup({host_device(engine)}), MisuseError);
}

}  // namespace
}  // namespace windrow::testing

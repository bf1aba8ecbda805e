// Names of ops and variables, from whatever text there is.
#include <gtest/gtest.h>

#include <string>

#include "windrow/engine/var.h"

namespace windrow {
namespace {

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

}  // namespace
}  // namespace windrow

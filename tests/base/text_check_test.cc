#include "base/text_check.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(HasControlTest, LineEndsAndEscapesAndC1) {
  EXPECT_FALSE(HasControl("node-1 \xC3\xA4"));
  EXPECT_TRUE(HasControl("a\nb"));
  EXPECT_TRUE(HasControl("a\tb"));
  EXPECT_TRUE(HasControl("\x1b[2J"));
  EXPECT_TRUE(HasControl("\xC2\x9B"));
}

TEST(IsUtf8Test, NoOverlongFormsAndNoCutCharacters) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("a\xE2\x82\xAC"));
  EXPECT_FALSE(IsUtf8("a\xE2\x82"));
  EXPECT_FALSE(IsUtf8("\xC0\x80"));
}

}  // namespace
}  // namespace ddprun

#include "launcher/config/line_prefix.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

const LinePrefixValues kValues{"trainer", 3, 11, "node-b"};

TEST(ExpandLinePrefix, Default_IsTorchruns) { EXPECT_EQ(ExpandLinePrefix(kDefaultLinePrefix, kValues), "[trainer3]:"); }

TEST(ExpandLinePrefix, EveryMacro_WithAndWithoutBraces) {
  EXPECT_EQ(ExpandLinePrefix("${hostname} ${rank} ${local_rank} ${role_name}|", kValues), "node-b 11 3 trainer|");
  EXPECT_EQ(ExpandLinePrefix("$hostname/$rank.$local_rank:$role_name", kValues), "node-b/11.3:trainer");
}

TEST(ExpandLinePrefix, Time_StaysForTheLine) {
  EXPECT_EQ(ExpandLinePrefix("$time ${time} $rank", kValues), "${time} ${time} 11");
}

TEST(ExpandLinePrefix, AllElse_StaysAsInPython) {
  for (const char* text :
       {"", "plain", "$", "${", "${}", "$ {rank}", "${rank", "$ranks", "${other}", "$other!", "{rank}"})
    EXPECT_EQ(ExpandLinePrefix(text, kValues), text);
  EXPECT_EQ(ExpandLinePrefix("$$rank $$$rank", kValues), "$rank $11");
}

}  // namespace
}  // namespace ddprun::launcher

#include "launcher/os/line_prefixer.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ddprun::launcher {
namespace {

// Returns the output if `pieces` arrive one by one and the stream ends.
std::string Prefixed(const std::vector<std::string>& pieces, size_t max_line = LinePrefixer::kMaxLine) {
  LinePrefixer prefixer("[default0]:", max_line);
  std::string out;
  for (const std::string& piece : pieces) prefixer.Feed(piece, &out);
  prefixer.Finish(&out);
  return out;
}

TEST(LinePrefixerTest, WholeLines_GetThePrefixDirectlyBefore) {
  EXPECT_EQ(Prefixed({"one\ntwo\n"}), "[default0]:one\n[default0]:two\n");
}

TEST(LinePrefixerTest, EmptyLines_GetItToo) { EXPECT_EQ(Prefixed({"\n\n"}), "[default0]:\n[default0]:\n"); }

TEST(LinePrefixerTest, NothingAtAll_GivesNothing) { EXPECT_EQ(Prefixed({""}), ""); }

TEST(LinePrefixerTest, PartialLine_IsKeptUntilItsEnd) {
  LinePrefixer prefixer("p:");
  std::string out;
  prefixer.Feed("hel", &out);
  EXPECT_EQ(out, "");
  prefixer.Feed("lo", &out);
  EXPECT_EQ(out, "");
  prefixer.Feed("\nnext", &out);
  EXPECT_EQ(out, "p:hello\n");
}

TEST(LinePrefixerTest, NoLineEndAtTheEnd_GetsOne) { EXPECT_EQ(Prefixed({"a\nb"}), "[default0]:a\n[default0]:b\n"); }

TEST(LinePrefixerTest, CarriageReturn_EndsALine) {
  EXPECT_EQ(Prefixed({"10%\r", "20%\r\n"}), "[default0]:10%\r[default0]:20%\r\n");
}

TEST(LinePrefixerTest, CarriageReturnAndLineFeed_AreOneLineEndEvenInTwoPieces) {
  EXPECT_EQ(Prefixed({"a\r\nb\r", "\nc\n"}), "[default0]:a\r\n[default0]:b\r\n[default0]:c\n");
}

TEST(LinePrefixerTest, CarriageReturnThenEmptyLine_AreTwo) {
  EXPECT_EQ(Prefixed({"a\r\n\n"}), "[default0]:a\r\n[default0]:\n");
}

TEST(LinePrefixerTest, LongLine_IsCutAtTheLimit) {
  EXPECT_EQ(Prefixed({"abcdefgh\n"}, 3), "[default0]:abc\n[default0]:def\n[default0]:gh\n");
  EXPECT_EQ(Prefixed({"ab", "cd", "ef", "gh"}, 3), "[default0]:abc\n[default0]:def\n[default0]:gh\n");
}

TEST(LinePrefixerTest, LineOfExactlyTheLimit_IsOneLine) {
  EXPECT_EQ(Prefixed({"abc\n"}, 3), "[default0]:abc\n");
  EXPECT_EQ(Prefixed({"abc", "\n"}, 3), "[default0]:abc\n");
}

TEST(LinePrefixerTest, InvalidTextAndZeros_PassUntouched) {
  const std::string bytes = std::string("\xff\xc3\x00\xe2\x82", 5);
  EXPECT_EQ(Prefixed({bytes + "\n"}), "[default0]:" + bytes + "\n");
}

TEST(LinePrefixerTest, AnyCutting_GivesTheSame) {
  const std::string text = "a\r\nbb\n\n\rccc\r\r\nd\ne";
  const std::string whole = Prefixed({text});
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      EXPECT_EQ(Prefixed({text.substr(0, first), text.substr(first, second - first), text.substr(second)}), whole)
          << first << " " << second;
    }
  }
}

TEST(LinePrefixerTest, Time_IsAskedForLineByLine) {
  int seconds = 0;
  LinePrefixer prefixer("${time} [${time}]:", LinePrefixer::kMaxLine, [&] { return std::to_string(++seconds); });
  std::string out;
  prefixer.Feed("a\nb\n", &out);
  EXPECT_EQ(out, "1 [1]:a\n2 [2]:b\n");
}

TEST(LinePrefixerTest, NoTimeGiven_TheMacroStays) {
  LinePrefixer prefixer("${time}:");
  std::string out;
  prefixer.Feed("a\n", &out);
  EXPECT_EQ(out, "${time}:a\n");
}

TEST(LinePrefixerTest, Filters_MatchTheLineWithoutItsPrefix) {
  LinePrefixer prefixer("[ok0]:");
  prefixer.SetFilters({"ok", ","});
  std::string out, matching;
  for (const char* piece : {"all o", "k\r", "\nnothing\n", "a,b"}) prefixer.Feed(piece, &out, &matching);
  prefixer.Finish(&out, &matching);
  EXPECT_EQ(out, "[ok0]:all ok\r\n[ok0]:nothing\n[ok0]:a,b\n");
  EXPECT_EQ(matching, "[ok0]:all ok\r\n[ok0]:a,b\n");
}

}  // namespace
}  // namespace ddprun::launcher

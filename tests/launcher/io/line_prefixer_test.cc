#include "launcher/io/line_prefixer.h"

#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
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

TEST(LinePrefixerTest, Lines_GetThePrefix) {
  const std::string bytes("\xff\xc3\x00\xe2\x82", 5);  // invalid text passes unchanged
  const struct {
    const char* what;
    std::vector<std::string> pieces;
    std::string expected;  // '>' stands for the prefix
    size_t max_line = LinePrefixer::kMaxLine;
  } kCases[] = {
      {"whole lines", {"one\ntwo\n"}, ">one\n>two\n"},
      {"empty lines", {"\n\n"}, ">\n>\n"},
      {"nothing", {""}, ""},
      {"no line end at the end", {"a\nb"}, ">a\n>b\n"},
      {"carriage return", {"10%\r", "20%\r\n"}, ">10%\r>20%\r\n"},
      {"CR LF, also in two pieces", {"a\r\nb\r", "\nc\n"}, ">a\r\n>b\r\n>c\n"},
      {"CR, then an empty line", {"a\r\n\n"}, ">a\r\n>\n"},
      {"longer than the limit", {"abcdefgh\n"}, ">abc\n>def\n>gh\n", 3},
      {"longer than the limit, in pieces", {"ab", "cd", "ef", "gh"}, ">abc\n>def\n>gh\n", 3},
      {"exactly the limit", {"abc\n"}, ">abc\n", 3},
      {"exactly the limit, in pieces", {"abc", "\n"}, ">abc\n", 3},
      {"invalid text and zeros", {bytes + "\n"}, ">" + bytes + "\n"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(Prefixed(c.pieces, c.max_line), absl::StrReplaceAll(c.expected, {{">", "[default0]:"}})) << c.what;
  }
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

TEST(LinePrefixerTest, Time_IsAskedForLineByLine_WithoutOneTheMacroStays) {
  int seconds = 0;
  LinePrefixer prefixer("${time} [${time}]:", LinePrefixer::kMaxLine, [&] { return std::to_string(++seconds); });
  LinePrefixer without("${time}:");
  std::string out;
  prefixer.Feed("a\nb\n", &out);
  without.Feed("a\n", &out);
  EXPECT_EQ(out, "1 [1]:a\n2 [2]:b\n${time}:a\n");
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

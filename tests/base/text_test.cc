#include "base/text.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(CleanText, CleanText_EveryKind_IsCleaned) {
  const std::pair<absl::string_view, const char*> kCases[] = {
      {"Grüße, 世界 🙂\n\tindented", "Grüße, 世界 🙂\n\tindented"},
      {absl::string_view("a\x1b[31mred\x07\0z\x7f", 11), "a?[31mred??"},
      {"\xc2\x9b\x33\x31m", "?31m"},  // U+009B: CSI in one character
      {"a\r\nb\rc", "a\nb\nc"},
      {"\xff", "?"},
      {"a\xc3", "a?"},               // cut off
      {"\xc0\xaf", "??"},            // overlong
      {"\xe0\x80\x80", "???"},       // overlong
      {"\xed\xa0\x80", "???"},       // surrogate
      {"\xf4\x90\x80\x80", "????"},  // above U+10FFFF
      {"\xf0\x80\x80\x80", "????"},  // overlong
      {"\xe2\x82x", "??x"},          // broken in the middle
  };
  for (const auto& [text, clean] : kCases) EXPECT_EQ(CleanText(text), clean);
}

TEST(OneLine, LineEndsAndTabs_BecomeSingleSpaces_AndItIsCutAtACharacter) {
  EXPECT_EQ(OneLine("  a\n\n b\tc \n", 100), "a b c");
  for (const char* empty : {"", "\n\n"}) EXPECT_EQ(OneLine(empty, 100), "");
  EXPECT_EQ(OneLine("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(OneLine("abcdefghi", 8), "abcde...");
  EXPECT_EQ(OneLine("abcdüüü", 8), "abcd...");  // ü would be cut in two
}

TEST(EscapeControls, PlainTextStays_ControlsAndBrokenUtf8AreShown) {
  EXPECT_EQ(EscapeControls("plain täxt \\"), "plain täxt \\");
  EXPECT_EQ(EscapeControls("a\nb\r\n\tc"), "a\\nb\\r\\n\\tc");
  EXPECT_EQ(EscapeControls(absl::string_view("\x1b[31m\0\x7f", 7)), "\\x1b[31m\\x00\\x7f");
  EXPECT_EQ(EscapeControls("\xc2\x85\xff\xc3"), "\\xc2\\x85\\xff\\xc3");
}

TEST(CutMiddle, LongText_KeepsBothEndsWithinTheBound) {
  EXPECT_EQ(CutMiddle("short", 256), "short");
  std::string text = "FIRST";
  for (int i = 0; i < 1000; ++i) text += "ü";
  text += "LAST";
  for (const size_t bound : {256u, 257u, 258u, 300u, 1000u}) {
    const std::string cut = CutMiddle(text, bound);
    EXPECT_LE(cut.size(), bound);
    EXPECT_EQ(cut.substr(0, 5), "FIRST");
    EXPECT_EQ(cut.substr(cut.size() - 4), "LAST");
    EXPECT_NE(cut.find("bytes left out"), std::string::npos);
    EXPECT_EQ(CleanText(cut), cut) << "a character was cut in two";
  }
}

TEST(Quoted, EveryCharacterIsVisible_AndTheLengthIsBounded) {
  EXPECT_EQ(Quoted("a b"), "'a b'");
  EXPECT_EQ(Quoted("2\r"), "'2\\r'");
  EXPECT_EQ(Quoted("a\nb\x1b"), "'a\\nb\\x1b'");
  for (const char* fill : {"x", "\r", "\u00a0", "\u2013"}) {
    std::string text;
    for (int i = 0; i < 10000; ++i) text += fill;
    EXPECT_LT(Quoted(text).size(), 120) << fill;
  }
}

TEST(Quoted, LookAlikes_AreNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {"\u2013nproc", "'\u2013nproc' (with an en dash)"},
      {"\u22121", "'\u22121' (with a minus sign that is not ASCII)"},
      {"2\u00a0", "'2\\u00a0' (with a no-break space)"},
      {"\ufeff2", "'\\ufeff2' (with a byte order mark)"},
      {"\u201ca=1\u201d", "'\u201ca=1\u201d' (with a typographic quotation mark)"},
      {"j\u00fc\u4e16", "'j\u00fc\u4e16'"},
  };
  for (const auto& [text, quoted] : kCases) EXPECT_EQ(Quoted(text), quoted);
}

TEST(Utf8Prefix, Utf8Prefix_LongText_EndsBetweenCharacters) {
  EXPECT_EQ(Utf8Prefix("a\xc3\xa4z", 4), "a\xc3\xa4z");
  EXPECT_EQ(Utf8Prefix("a\xc3\xa4z", 3), "a\xc3\xa4");
  EXPECT_EQ(Utf8Prefix("a\xc3\xa4z", 2), "a");
  EXPECT_EQ(Utf8Prefix("\xf0\x9f\x98\x80", 3), "");
  EXPECT_EQ(Utf8Suffix("a\xc3\xa4z", 9), "a\xc3\xa4z");
  EXPECT_EQ(Utf8Suffix("a\xc3\xa4z", 3), "\xc3\xa4z");
  EXPECT_EQ(Utf8Suffix("a\xc3\xa4z", 2), "z");
}

TEST(CountedTest, Counted_One_IsSingular) {
  EXPECT_EQ(Counted(0, "node"), "0 nodes");
  EXPECT_EQ(Counted(1, "node"), "1 node");
  EXPECT_EQ(Counted(2, "GPU"), "2 GPUs");
}

TEST(HasControlTest, HasControl_LineEndsEscapesAndC1_AreFound) {
  EXPECT_FALSE(HasControl("node-1 \xC3\xA4"));
  for (const char* text : {"a\nb", "a\tb", "\x1b[2J", "\xC2\x9B"}) EXPECT_TRUE(HasControl(text)) << text;
}

TEST(IsUtf8Test, IsUtf8_OverlongOrCutCharacters_AreInvalid) {
  EXPECT_TRUE(IsUtf8("") && IsUtf8("a\xE2\x82\xAC"));
  EXPECT_FALSE(IsUtf8("a\xE2\x82") || IsUtf8("\xC0\x80"));
}

TEST(GrpcCauseTest, GrpcCause_WrappersAndAddresses_AreOmitted) {
  const std::pair<const char*, const char*> kCases[] = {
      {"failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:29400: Failed to connect to remote "
       "host: Connection refused",
       "Connection refused"},
      {"failed to connect to all addresses; last error: UNAVAILABLE: ipv6:%5B::1%5D:29400: Socket closed",
       "Socket closed"},
      {"ipv4:10.0.0.1:29400: sendmsg:Broken pipe", "Broken pipe"},
      {"recvmsg:Connection reset by peer", "Connection reset by peer"}};
  for (const auto& [message, cause] : kCases) EXPECT_EQ(GrpcCause(message), cause);
  for (const char* message : {"", "etcdserver: no leader", "nnodes differs: 2 on ipv4:", "host ipv6:x"}) {
    EXPECT_EQ(GrpcCause(message), message);
  }
}

TEST(RangesText, Lists_AreCompacted) {
  EXPECT_EQ(RangesText({}), "");
  EXPECT_EQ(RangesText({4}), "4");
  EXPECT_EQ(RangesText({2, 1, 0, 1}), "0-2");
  EXPECT_EQ(RangesText({9, 0, 1, 2, 5, 7, 8}), "0-2, 5, 7-9");
  std::vector<int32_t> even;
  for (int32_t i = 0; i < 1000; i += 2) even.push_back(i);
  EXPECT_EQ(RangesText(even), "0, 2, 4, 6, 8, 10, 12, 14, ... (500 in all)");
  even.resize(8);
  EXPECT_EQ(RangesText(even), "0, 2, 4, 6, 8, 10, 12, 14");
}

TEST(RanksText, RanksText_OneOrSeveral_NamesThem) {
  EXPECT_EQ(RanksText({}), "no rank");
  EXPECT_EQ(RanksText({3}), "rank 3");
  EXPECT_EQ(RanksText({3, 3}), "rank 3");
  EXPECT_EQ(RanksText({0, 1, 3}, 8), "ranks 8-9, 11");
}

}  // namespace
}  // namespace ddprun

#include "launcher/report/last_lines.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

TEST(ReadLastLines, TerminalOutput_IsReadAsItLooks) {
  const struct {
    const char* bytes;
    const char* text;
  } kCases[] = {
      {"", ""},
      {"\n \n\n", ""},
      {"one\ntwo", "one\ntwo"},
      {"one\r\n\r\ntwo\r\n", "one\ntwo"},
      {"\x1b[1;31mred\x1b[0m \x1b]0;title\x07text\x1b(B", "red text"},
      {"\x1b]8;;file://x\x1b\\link\x1b]8;;\x1b\\", "link"},
      {"\x1b[", ""},
      {"\x1b", ""},
      {"\x1b]never ends", ""},
      {"\r 0%\r 50%\r100%\nend", "100%\nend"},
      {"\r 99%\r     \rend", "end"},
      {"\r 99%\r     \r", ""},
      {"99%\r", "99%"},
      {"caf\xc3\xa9 \xff\x01", "caf\xc3\xa9 ??"},
  };
  for (const auto& [bytes, text] : kCases) EXPECT_EQ(ReadLastLines(bytes).text, text) << bytes;
}

TEST(ReadLastLines, Flood_IsCutToTheLastLines) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&bytes, "line ", i, std::string(1000, 'x'), "\n");
  const LastLines lines = ReadLastLines(absl::StrCat(bytes, std::string(999, 'a'), "\xc3\xa9"));
  const std::vector<std::string> shown = absl::StrSplit(lines.text, '\n');
  ASSERT_EQ(shown.size(), LastLines::kMaxLines);
  EXPECT_EQ(shown.back(), std::string(LastLines::kMaxLineBytes, 'a'));
  EXPECT_EQ(shown[18].substr(0, 8), "line 999");
  EXPECT_EQ(CleanText(ReadLastLines(std::string(299, 'a') + "\xc3\xa9").text), std::string(299, 'a'));
}

TEST(ReadLastLines, TheError_IsFoundInManyLanguages) {
  const struct {
    const char* bytes;
    const char* error;
  } kCases[] = {
      {"sh: 1: foo: not found\n", "sh: 1: foo: not found"},
      {"x.sh: line 3: foo: command not found\n", "x.sh: line 3: foo: command not found"},
      {"boom at x.pl line 3.\n", "boom at x.pl line 3."},
      {"terminate called after throwing an instance of 'std::runtime_error'\n  what():  boom\n", "what():  boom"},
      {"prog: prog.c:3: main: Assertion `0' failed.\n", "prog: prog.c:3: main: Assertion `0' failed."},
      {"panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/x.go:4 +0x1\nexit status 2\n", "panic: boom"},
      {"Exception in thread \"main\" java.io.IOException: boom\n\tat Main.main(Main.java:5)\n",
       "Exception in thread \"main\" java.io.IOException: boom"},
      {"ERROR: LoadError: boom\nStacktrace:\n [1] error(s::String)\n   @ Base ./error.jl:35\n",
       "ERROR: LoadError: boom"},
      {"/x.js:1\nthrow new Error('boom')\n^\n\nError: boom\n    at Object (/x.js:1:7)\n\nNode.js v18\n", "Error: boom"},
      {"Error in f() : boom\nExecution halted\n", "Error in f() : boom"},
      {"Traceback (most recent call last):\n  File \"x.py\", line 1\nValueError: boom\n", "ValueError: boom"},
      {"dd: error writing 'x': No space left on device\ndone\n", "dd: error writing 'x': No space left on device"},
      {"step 1\nstep 2\n", ""},
      {"x.py:3: UserWarning: an error is near\n", ""},
      {"Exception ignored in: <function F.__del__>\nTraceback (most recent call last):\n  File \"x\", line 1\n"
       "ValueError: in __del__\nstep 3\n",
       ""},
      {"Exception ignored in: <function F.__del__>\nTraceback (most recent call last):\n  File \"x\", line 1\n"
       "ValueError: in __del__\nOSError: real\n",
       "OSError: real"},
  };
  for (const auto& [bytes, error] : kCases) EXPECT_EQ(ReadLastLines(bytes).error, error) << bytes;
  EXPECT_EQ(ReadLastLines("one\n  need 4 GPUs\n").last, "need 4 GPUs");
}

}  // namespace
}  // namespace ddprun::launcher

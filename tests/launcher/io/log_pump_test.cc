#include "launcher/io/log_pump.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/spawn_process.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

const absl::Duration kLong = absl::Seconds(60);

class LogPumpTest : public ::testing::Test {
 protected:
  LogSink Sink(const std::string& file_name, int console_fd, const std::string& prefix) {
    LogSink sink;
    if (!file_name.empty()) {
      sink.file.name = dir_.File(file_name);
      sink.file.fd = *OpenLogFile(sink.file.name);
    }
    sink.console_fd = console_fd;
    sink.prefix = prefix;
    return sink;
  }

  // Starts `argv` with both streams going to `pump`.
  Child Start(LogPump* pump, std::vector<std::string> argv, LogSink out, LogSink err) {
    SpawnRequest request = RequestFor(std::move(argv));
    const UniqueFd out_pipe = *pump->Add(std::move(out));
    const UniqueFd err_pipe = *pump->Add(std::move(err));
    request.stdout_fd = out_pipe.get();
    request.stderr_fd = err_pipe.get();
    return MustSpawn(request);
  }

  void WriteAndClose(absl::StatusOr<UniqueFd> pipe, const std::string& text) {
    ASSERT_TRUE(pipe.ok());
    ASSERT_EQ(write(pipe->get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  static std::vector<std::string> Lines(const std::string& text) {
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }
  // All that the console got.
  std::string Shown() {
    console_.write.reset();
    return ReadToEnd(console_.read.get());
  }

  const testing::TempDir dir_;
  Pipe console_;
};

TEST_F(LogPumpTest, Add_FilesGetBytes_ConsoleGetsPrefixedLines) {
  LogPump pump;
  WriteAndClose(pump.Add(Sink("both", console_.write.get(), "[default0]:")), "one\ntwo");
  WriteAndClose(pump.Add(Sink("out", -1, "")), "to the file\n");
  WriteAndClose(pump.Add(Sink("", console_.write.get(), "p:")), "to the console\n");
  EXPECT_TRUE(pump.Drain(SteadyNow() + kLong));
  EXPECT_EQ(testing::ReadFile(dir_.File("both")), "one\ntwo");
  EXPECT_EQ(testing::ReadFile(dir_.File("out")), "to the file\n");
  EXPECT_THAT(Lines(Shown()), ::testing::UnorderedElementsAre("[default0]:one", "[default0]:two", "p:to the console"));
}

TEST_F(LogPumpTest, Filters_MatchingLinesOfAllStreams_GoToTheirFile) {
  LogPump pump;
  for (const char* prefix : {"a:", "b:"}) {
    LogSink sink = Sink("", console_.write.get(), prefix);
    sink.filters = {"loss", "error"};
    sink.filtered.fd = *OpenLogFile(dir_.File("filtered"));
    WriteAndClose(pump.Add(std::move(sink)), "step 1\nloss 2\nan error");
  }
  EXPECT_TRUE(pump.Drain(SteadyNow() + kLong));
  EXPECT_THAT(Lines(testing::ReadFile(dir_.File("filtered"))),
              ::testing::UnorderedElementsAre("a:loss 2", "a:an error", "b:loss 2", "b:an error"));
  EXPECT_THAT(Shown(), HasSubstr("b:step 1\n"));
}

TEST_F(LogPumpTest, Prefix_Time_IsThatOfTheLine) {
  LogPump pump;
  WriteAndClose(pump.Add(Sink("", console_.write.get(), "${time} 0:")), "one\n");
  EXPECT_TRUE(pump.Drain(SteadyNow() + kLong));
  EXPECT_THAT(Shown(), ::testing::ContainsRegex("^20[0-9-]{8}T[0-9:]{8}\\.[0-9]{3}Z 0:one\n$"));
}

TEST_F(LogPumpTest, PassedOn_BytesAreUnchangedAndTailIsKept) {
  LogPump pump;
  LogSink sink;
  sink.file.fd = UniqueFd(dup(console_.write.get()));
  sink.passes_on = true;
  std::shared_ptr<PipeTail> tail;
  WriteAndClose(pump.Add(std::move(sink), &tail), "one\r\ntwo");
  EXPECT_TRUE(pump.Drain(SteadyNow() + kLong));
  EXPECT_EQ(Shown(), "one\r\ntwo");
  EXPECT_EQ(tail->Text(), "one\r\ntwo");
}

// A worker must not wait for the reader of one stream before it can write its log files.
TEST_F(LogPumpTest, PassedOn_StreamIsNotRead_LogFilesContinue) {
  LogPump pump;
  Pipe full;
  fcntl(full.write.get(), F_SETPIPE_SZ, 4096);
  LogSink sink;
  sink.file.fd = UniqueFd(dup(full.write.get()));
  sink.passes_on = true;
  std::shared_ptr<PipeTail> tail;
  UniqueFd worker = *pump.Add(std::move(sink), &tail);
  const std::string text = std::string(20000, 'x') + "the end";
  ASSERT_EQ(write(worker.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(tail->Text(), text.substr(text.size() - kOutputTailBytes));
  WriteAndClose(pump.Add(Sink("file", -1, "")), "to the file\n");
  ASSERT_TRUE(testing::Eventually([&] { return testing::ReadFile(dir_.File("file")) == "to the file\n"; }));
  worker.reset();
  std::thread reader([&] { EXPECT_EQ(ReadToEnd(full.read.get()), text); });
  EXPECT_TRUE(pump.Drain(SteadyNow() + kLong));
  full.write.reset();
  reader.join();
}

TEST_F(LogPumpTest, PassedOn_ClosedStream_ClosesTheWorkersStream) {
  LogPump pump;
  LogSink sink;
  sink.file.fd = UniqueFd(dup(console_.write.get()));
  sink.passes_on = true;
  console_.read.reset();
  const UniqueFd worker = *pump.Add(std::move(sink));
  const auto handler = signal(SIGPIPE, SIG_IGN);
  ASSERT_EQ(write(worker.get(), "x", 1), 1);
  EXPECT_TRUE(testing::Eventually([&] { return write(worker.get(), "x", 1) < 0 && errno == EPIPE; }));
  signal(SIGPIPE, handler);
}

TEST_F(LogPumpTest, Drain_Unused_IsTrueWithoutThreads) {
  LogPump pump;
  EXPECT_TRUE(pump.Drain(SteadyNow()));
  EXPECT_TRUE(absl::IsFailedPrecondition(pump.Add(LogSink()).status()));
}

TEST_F(LogPumpTest, Flood_SlowConsole_FilesAreCompleteAndLinesWhole) {
  constexpr int kWorkers = 6;
  constexpr int kLines = 20000;
  constexpr int kLength = 60;
  Pipe console;
  // One page: the console is nearly always full and cannot take everything in time.
  fcntl(console.write.get(), F_SETPIPE_SZ, 4096);
  std::string shown;
  std::thread reader([&] {
    char buffer[1000];
    ssize_t got;
    while ((got = read(console.read.get(), buffer, sizeof(buffer))) > 0) shown.append(buffer, got);
  });
  LogPump pump;
  std::vector<Child> children;
  for (int i = 0; i < kWorkers; ++i) {
    children.push_back(Start(&pump, {TestProgram("flood"), absl::StrCat(kLines), absl::StrCat(kLength), "the end"},
                             Sink(absl::StrCat("out", i), console.write.get(), absl::StrCat("[o", i, "]:")),
                             Sink(absl::StrCat("err", i), console.write.get(), absl::StrCat("[e", i, "]:"))));
  }
  for (const Child& child : children) EXPECT_TRUE(WaitFor(child).ok());
  EXPECT_TRUE(pump.Drain(SteadyNow() + kLong));
  console.write.reset();
  reader.join();

  const std::string line = std::string(kLength - 1, 'x');
  std::string expected;
  for (int i = 0; i < kLines; ++i) expected += line + "\n";
  expected += "the end";
  for (int i = 0; i < kWorkers; ++i) {
    for (const char* stream : {"out", "err"}) {
      EXPECT_TRUE(testing::ReadFile(dir_.File(absl::StrCat(stream, i))) == expected) << stream << i;
    }
  }
  std::set<std::string> whole;
  for (int i = 0; i < kWorkers; ++i) {
    for (const char* stream : {"o", "e"}) {
      whole.insert(absl::StrCat("[", stream, i, "]:", line));
      whole.insert(absl::StrCat("[", stream, i, "]:the end"));
    }
  }
  int lines = 0;
  for (const std::string& shown_line : Lines(shown)) {
    int not_shown = 0;
    if (sscanf(shown_line.c_str(), "ddprun: %d lines of output not shown", &not_shown) == 1) {
      lines += not_shown;
    } else {
      ASSERT_EQ(whole.count(shown_line), 1) << "torn: " << shown_line;
      ++lines;
    }
  }
  EXPECT_EQ(lines, 2 * kWorkers * (kLines + 1));
}

TEST_F(LogPumpTest, WorkerKilled_EarlierOutputIsKept) {
  LogPump pump;
  const Child child = Start(&pump, {"/bin/sh", "-c", "echo last words; echo no end >&2 | cat; kill -9 $$"},
                            Sink("out", -1, ""), Sink("err", -1, ""));
  EXPECT_EQ(WaitFor(child).code, SIGKILL);
  EXPECT_TRUE(pump.Drain(SteadyNow() + kLong));
  EXPECT_EQ(testing::ReadFile(dir_.File("out")), "last words\n");
  EXPECT_EQ(testing::ReadFile(dir_.File("err")), "no end\n");
}

TEST_F(LogPumpTest, Drain_PipeHeldByAGrandchild_EndsAtTheDeadlineWithEverythingWritten) {
  LogPump pump;
  absl::StatusOr<UniqueFd> held = pump.Add(Sink("out", console_.write.get(), "p:"));
  ASSERT_EQ(write(held->get(), "half", 4), 4);
  EXPECT_FALSE(pump.Drain(SteadyNow()));
  EXPECT_EQ(testing::ReadFile(dir_.File("out")), "half");
  EXPECT_EQ(Shown(), "p:half\n");
}

TEST_F(LogPumpTest, ConsoleBlocks_WorkersFinishAndFilesAreComplete) {
  Pipe console;
  fcntl(console.write.get(), F_SETPIPE_SZ, 4096);
  LogPump pump;
  constexpr int kBytes = 3 * LogPump::kConsoleBytes;
  const Child child = Start(&pump, {TestProgram("flood"), absl::StrCat(kBytes / 100), "100"},
                            Sink("out", console.write.get(), "o:"), Sink("", console.write.get(), "e:"));
  EXPECT_TRUE(WaitFor(child).ok());
  EXPECT_FALSE(pump.Drain(SteadyNow() + absl::Milliseconds(50)));
  EXPECT_EQ(testing::ReadFile(dir_.File("out")).size(), kBytes / 100 * 100);
  // The thread that writes to the console is still inside write(), and outlives the pump.
  console.write.release();
}

TEST_F(LogPumpTest, DiskFull_IsReportedOnceAndTheConsoleContinues) {
  Pipe console;
  ::testing::internal::CaptureStderr();
  {
    LogPump pump;
    LogSink sink = Sink("", console.write.get(), "p:");
    sink.file.fd.reset(open("/dev/full", O_WRONLY | O_CLOEXEC));
    sink.file.name = "/log/out";
    const UniqueFd pipe = *pump.Add(std::move(sink));
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(write(pipe.get(), "line\n", 5), 5);
      std::string seen;
      char byte;
      while (seen != "p:line\n") {
        ASSERT_TRUE(WaitReadable(console.read.get()));
        ASSERT_EQ(read(console.read.get(), &byte, 1), 1);
        seen += byte;
      }
    }
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("log file /log/out: No space left on device"));
  EXPECT_EQ(log.find("No space left"), log.rfind("No space left")) << log;
}

TEST_F(LogPumpTest, ConsoleClosed_FilesAndWorkersContinue) {
  Pipe console;
  console.read.reset();
  ::testing::internal::CaptureStderr();
  LogPump pump;
  const Child child =
      Start(&pump, {TestProgram("flood"), "1000", "100"}, Sink("out", console.write.get(), "o:"), Sink("err", -1, ""));
  EXPECT_TRUE(WaitFor(child).ok());
  EXPECT_TRUE(pump.Drain(SteadyNow() + kLong));
  EXPECT_EQ(testing::ReadFile(dir_.File("out")).size(), 100000);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("no longer showing the workers' output"));
}

TEST_F(LogPumpTest, ConsoleNonBlocking_NothingIsLost) {
  Pipe console;
  fcntl(console.write.get(), F_SETPIPE_SZ, 4096);
  fcntl(console.write.get(), F_SETFL, O_NONBLOCK);
  std::string shown;
  std::thread reader([&] { shown = ReadToEnd(console.read.get()); });
  LogPump pump;
  const Child child =
      Start(&pump, {TestProgram("flood"), "10000", "100"}, Sink("", console.write.get(), "p:"), Sink("err", -1, ""));
  EXPECT_TRUE(WaitFor(child).ok());
  EXPECT_TRUE(pump.Drain(SteadyNow() + kLong));
  console.write.reset();
  reader.join();
  EXPECT_EQ(shown.size(), 10000 * 102);
}

TEST_F(LogPumpTest, Restart_NewStreamsAreAddedToTheSameFiles) {
  LogPump pump;
  for (int round = 0; round < 3; ++round) {
    const Child child =
        Start(&pump, {"/bin/sh", "-c", absl::StrCat("echo round ", round)}, Sink("out", -1, ""), Sink("err", -1, ""));
    EXPECT_TRUE(WaitFor(child).ok());
  }
  EXPECT_TRUE(pump.Drain(SteadyNow() + kLong));
  EXPECT_THAT(Lines(testing::ReadFile(dir_.File("out"))),
              ::testing::UnorderedElementsAre("round 0", "round 1", "round 2"));
}

TEST_F(LogPumpTest, OpenLogFile_Impossible_NamesTheFile) {
  EXPECT_THAT(OpenLogFile("/no/such/folder/out.log").status().message(), HasSubstr("'/no/such/folder/out.log'"));
}

// Returns the output if `pieces` arrive one by one and the stream ends.
std::string Prefixed(const std::vector<std::string>& pieces, size_t max_line = LinePrefixer::kMaxLine) {
  LinePrefixer prefixer("[default0]:", max_line);
  std::string out;
  for (const std::string& piece : pieces) prefixer.Feed(piece, &out);
  prefixer.Finish(&out);
  return out;
}

TEST(LinePrefixerTest, Feed_PartialLine_IsKeptUntilItsEnd) {
  LinePrefixer prefixer("p:");
  std::string out;
  prefixer.Feed("hel", &out);
  EXPECT_EQ(out, "");
  prefixer.Feed("lo", &out);
  EXPECT_EQ(out, "");
  prefixer.Feed("\nnext", &out);
  EXPECT_EQ(out, "p:hello\n");
}

TEST(LinePrefixerTest, Feed_Lines_GetThePrefix) {
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

TEST(LinePrefixerTest, Feed_AnyPieces_GiveTheSameLines) {
  const std::string text = "a\r\nbb\n\n\rccc\r\r\nd\ne";
  const std::string whole = Prefixed({text});
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      EXPECT_EQ(Prefixed({text.substr(0, first), text.substr(first, second - first), text.substr(second)}), whole)
          << first << " " << second;
    }
  }
}

TEST(LinePrefixerTest, Time_IsAskedPerLine) {
  int seconds = 0;
  LinePrefixer prefixer("${time} [${time}]:", LinePrefixer::kMaxLine, [&] { return std::to_string(++seconds); });
  LinePrefixer without("${time}:");
  std::string out;
  prefixer.Feed("a\nb\n", &out);
  without.Feed("a\n", &out);
  EXPECT_EQ(out, "1 [1]:a\n2 [2]:b\n${time}:a\n");
}

TEST(LinePrefixerTest, Filters_IgnoreThePrefix) {
  LinePrefixer prefixer("[ok0]:");
  prefixer.SetFilters({"ok", ","});
  std::string out, matching;
  for (const char* piece : {"all o", "k\r", "\nnothing\n", "a,b"}) prefixer.Feed(piece, &out, &matching);
  prefixer.Finish(&out, &matching);
  EXPECT_EQ(out, "[ok0]:all ok\r\n[ok0]:nothing\n[ok0]:a,b\n");
  EXPECT_EQ(matching, "[ok0]:all ok\r\n[ok0]:a,b\n");
}

void Write(const UniqueFd& fd, const std::string& text) {
  ASSERT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

TEST(PipeTailTest, Text_UnreadBytes_AreIncluded) {
  Pipe pipe;
  fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  PipeTail tail(pipe.read.get());
  EXPECT_EQ(tail.Text(), "");
  char buffer[4] = {};
  EXPECT_EQ(tail.Read(buffer, sizeof buffer), -1);
  Write(pipe.write, "abcdef");
  EXPECT_EQ(tail.Text(), "abcdef");
  EXPECT_EQ(tail.Text(), "abcdef") << "it was not consumed";
  EXPECT_EQ(tail.Read(buffer, sizeof buffer), 4);
  EXPECT_EQ(std::string(buffer, 4), "abcd");
  EXPECT_EQ(tail.Text(), "abcdef");
  EXPECT_EQ(tail.Read(buffer, sizeof buffer), 2);
  pipe.write.reset();
  EXPECT_EQ(tail.Read(buffer, sizeof buffer), 0);
  tail.End();
  pipe.read.reset();
  EXPECT_EQ(tail.Text(), "abcdef");
}

TEST(PipeTailTest, Text_MuchOutput_IsTheLastBytes) {
  Pipe pipe;
  PipeTail tail(pipe.read.get());
  std::vector<char> buffer(3000);
  std::string all;
  for (int i = 0; i < 20; ++i) {
    const std::string text(2999, static_cast<char>('a' + i));
    all += text;
    Write(pipe.write, text);
    if (i < 15) {
      ASSERT_EQ(tail.Read(buffer.data(), buffer.size()), 2999);
    }
    EXPECT_EQ(tail.Text(), all.substr(all.size() - std::min(all.size(), kOutputTailBytes)));
  }
  buffer.resize(60000);
  EXPECT_EQ(tail.Read(buffer.data(), buffer.size()), 5 * 2999);
  EXPECT_EQ(tail.Text(), all.substr(all.size() - kOutputTailBytes));
}

TEST(PipeTailTest, Text_CutLine_IsLeftOut) {
  Pipe pipe;
  const PipeTail tail(pipe.read.get());
  Write(pipe.write, "password=secret\nlast\n");
  EXPECT_EQ(tail.Text(100), "password=secret\nlast\n");
  EXPECT_EQ(tail.Text(10), "last\n");
  EXPECT_EQ(tail.Text(3), "st\n") << "there is no other line";
}

TEST(PipeTailTest, From_Position_IsKeptOrTheFirstKept) {
  Pipe pipe;
  PipeTail tail(pipe.read.get());
  std::vector<char> buffer(32 << 10);
  std::string all;
  for (int i = 0; i < 20; ++i) {
    const std::string text(buffer.size(), static_cast<char>('a' + i));
    all += text;
    Write(pipe.write, text);
    ASSERT_EQ(tail.Read(buffer.data(), buffer.size()), static_cast<ssize_t>(text.size()));
  }
  EXPECT_EQ(tail.end(), all.size());
  uint64_t begin = 0;
  EXPECT_EQ(tail.From(all.size() - 10, 7, &begin), all.substr(all.size() - 10, 7));
  EXPECT_EQ(begin, all.size() - 10);
  const std::string kept = tail.From(0, all.size(), &begin);
  EXPECT_EQ(kept, all.substr(begin));
  EXPECT_GE(kept.size(), PipeTail::kKeptBytes);
  EXPECT_LE(kept.size(), 2 * PipeTail::kKeptBytes);
  EXPECT_EQ(tail.From(all.size() + 5, 7, &begin), "");
  EXPECT_EQ(begin, all.size());
  EXPECT_EQ(tail.Since(SteadyNow() - absl::Hours(1)), 0u);
  EXPECT_EQ(tail.Since(SteadyNow() + absl::Hours(1)), all.size());
}

TEST(ReadFileTail, Offset_SkipsOlderText) {
  const testing::TempDir dir;
  const std::string path = dir.File("log");
  EXPECT_EQ(ReadFileTail(path, 0), "");
  std::ofstream(path) << "earlier\nnow\n";
  EXPECT_EQ(ReadFileTail(path, 0), "earlier\nnow\n");
  EXPECT_EQ(ReadFileTail(path, 8), "now\n");
  EXPECT_EQ(ReadFileTail(path, 12), "");
  EXPECT_EQ(ReadFileTail(path, 100), "");
  std::ofstream(path) << std::string(100'000, 'x') << "end";
  EXPECT_EQ(ReadFileTail(path, 8), std::string(kOutputTailBytes - 3, 'x') + "end");
}

}  // namespace

}  // namespace ddprun::launcher

#include "launcher/report/explain_end.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using rendezvous::WorkerFailure;

WorkerFailure Explained(absl::string_view failure, const EndEvidence& evidence) {
  WorkerFailure result = TextProto(failure, rendezvous::NewFailure());
  ExplainEnd(evidence, &result);
  return result;
}

TEST(ExplainEnd, WithoutAnErrorFile_StderrIsQuoted) {
  const struct {
    const char* failure;
    const char* output;
    const char* message;
  } kCases[] = {
      {"exit_code: 3", "", ""},
      {"exit_code: 3", "step 1\nstep 2\n", "last line of stderr: step 2"},
      {"exit_code: 3", "fatal: no data\nbye\n", "fatal: no data"},
      {"signal: 6", "terminate called after throwing an instance of 'E'\n  what():  boom\n", "what():  boom"},
      {"signal: 6", "step 1\n", ""},
      {"signal: 11", "Segmentation fault in f\n", "Segmentation fault in f"},
      {"signal: 9", "an error of another time\n", ""},
      {"signal: 15", "an error of another time\n", ""},
  };
  for (const auto& [failure, output, message] : kCases) {
    const WorkerFailure result = Explained(failure, {.output = output});
    EXPECT_EQ(result.message(), message) << failure << " " << output;
    // A single line is in the message.
    const bool whole = absl::EndsWith(absl::StrCat(message, "\n"), output);
    EXPECT_EQ(result.traceback().empty(), whole) << failure << " " << output;
  }
  EXPECT_EQ(Explained("exit_code: 3", {.output = "\x1b[31mone\x1b[0m\ntwo\n"}).traceback(),
            "last lines of stderr:\none\ntwo");
}

TEST(ExplainEnd, ErrorFile_IsKept) {
  const EndEvidence evidence{.output = "Traceback\nOSError: other\n"};
  EXPECT_EQ(Explained("exit_code: 1 message: 'ValueError: x' traceback: 'T'", evidence).message(), "ValueError: x");
  EXPECT_EQ(Explained("exit_code: 1 message: 'ValueError: x' traceback: 'T'", evidence).traceback(), "T");
  EXPECT_EQ(Explained("signal: 6 message: 'abort() was called' traceback: 'T'", evidence).message(),
            "abort() was called; OSError: other");
  const std::string message = "CalledProcessError: Command 'x' returned non-zero exit status 1.";
  EXPECT_EQ(Explained(absl::StrCat("exit_code: 1 traceback: 'T' message: \"", message, "\""),
                      {.output = absl::StrCat("ValueError: in the child\nsubprocess.", message, "\n")})
                .message(),
            message + "; ValueError: in the child");
}

TEST(ExplainEnd, ErrorFileWithoutATraceback_StderrIsQuoted) {
  const EndEvidence evidence{.output = "Traceback\nMemoryError\n"};
  const WorkerFailure result = Explained("exit_code: 1 message: 'MemoryError'", evidence);
  EXPECT_EQ(result.message(), "MemoryError");
  EXPECT_EQ(result.traceback(), "last lines of stderr:\nTraceback\nMemoryError");
}

TEST(ExplainEnd, OutOfMemory_AppliesToWhatWasKilled) {
  const EndEvidence evidence{.oom_kills = "out of memory: 1"};
  const struct {
    const char* failure;
    const char* message;
  } kCases[] = {
      {"signal: 9", "out of memory: 1"},
      {"exit_code: 137", "out of memory: 1"},
      {"exit_code: 1 message: 'RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. '",
       "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.; out of memory: 1"},
      {"exit_code: 1 message: 'process 0 terminated with signal SIGKILL'",
       "process 0 terminated with signal SIGKILL; out of memory: 1"},
      {"exit_code: 1 message: 'ValueError'", "ValueError"},
      {"signal: 11", ""},
  };
  for (const auto& [failure, message] : kCases) {
    const WorkerFailure result = Explained(failure, evidence);
    EXPECT_EQ(result.message(), message);
    EXPECT_EQ(result.oom_killed(), result.message().find("out of memory") != std::string::npos);
  }
  EXPECT_FALSE(Explained("signal: 9", {}).oom_killed());
}

TEST(ExplainEnd, CoreDump_IsNamed) {
  EXPECT_EQ(Explained("signal: 11", {.core_dumped = true}).message(), "core dumped");
  EXPECT_EQ(Explained("signal: 11 message: 'SIGSEGV at 0x0'", {.core_dumped = true}).message(),
            "SIGSEGV at 0x0; core dumped");
}

}  // namespace
}  // namespace ddprun::launcher

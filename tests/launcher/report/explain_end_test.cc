#include "launcher/report/explain_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
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

// Its line need not be the last error on stderr: c10::Error and Python's handlers print theirs after it.
TEST(ExplainEnd, AbortByNcclsWatchdog_IsNamedSo) {
  const struct {
    const char* output;
    const char* message;
  } kCases[] = {
      {"[rank1] Aborting process on rank 1 due to timeout - collective operation timed out\nFatal error: Aborted\n",
       "[rank1] Aborting process on rank 1 due to timeout - collective operation timed out"},
      {"[E] Some NCCL operations have failed or timed out.\nterminate called after throwing an instance of 'E'\n"
       "  what():  Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught collective "
       "operation timeout: WorkNCCL(SeqNum=3)\n",
       "what():  Process group watchdog thread terminated with exception: [Rank 1] Watchdog caught collective "
       "operation timeout: WorkNCCL(SeqNum=3)"},
  };
  for (const auto& [output, message] : kCases) {
    const std::string ended = absl::StrCat("ended by NCCL's watchdog: ", message);
    EXPECT_EQ(Explained("signal: 6", {.output = output}).message(), ended);
    EXPECT_EQ(Explained("signal: 6 message: 'SIGABRT in abort()' traceback: 'T'", {.output = output}).message(),
              absl::StrCat("SIGABRT in abort(); ", ended));
    EXPECT_FALSE(absl::StrContains(Explained("exit_code: 1", {.output = output}).message(), "ended by"))
        << "a process that exits after such a line was not ended by it";
  }
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

TEST(ExplainEnd, OutOfMemory_AppliesToKilledWorkersOnly) {
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

TEST(ReadLastLines, ErrorLine_OfManyLanguages_IsFound) {
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

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Hint(const std::string& message, const std::string& traceback = "", const std::string& interface = "eth1") {
  rendezvous::WorkerFailure failure = rendezvous::NewFailure();
  failure.set_message(message);
  failure.set_traceback(traceback);
  return NetworkHint(failure, interface);
}

// Error of ProcessGroupNCCL; "Last error" is NCCL's own line.
std::string DistBackendError(const std::string& last_error) {
  return "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, "
         "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5\n"
         "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n"
         "Last error:\n" +
         last_error;
}

TEST(NetworkHint, UnreachableAddress_NamesTheVariableAndTheLaunchersInterface) {
  for (const char* error : {"socketPollConnect: Connect to 172.17.0.2<43077> returned 113(No route to host) errno 115",
                            "socketStartConnect: Connect to 172.17.0.2<43077> failed : Network is unreachable",
                            "Bootstrap : no socket interface found"}) {
    EXPECT_THAT(Hint(DistBackendError(error)),
                AllOf(HasSubstr("NCCL_SOCKET_IFNAME"), HasSubstr("here the launchers use eth1"), Not(HasSubstr("\n"))))
        << error;
  }
  EXPECT_THAT(Hint("DistBackendError", DistBackendError("socketPollConnect: ...")), HasSubstr("NCCL_SOCKET_IFNAME"))
      << "in the traceback";
  EXPECT_THAT(Hint(DistBackendError("socketPollConnect: ..."), "", ""), Not(HasSubstr("here the launchers")));
}

TEST(NetworkHint, Infiniband_NamesItsVariables) {
  for (const char* error :
       {"NET/IB : Got completion from peer 10.0.0.2<38123> with status=12 opcode=0 len=0 vendor err 129",
        "Call to ibv_modify_qp failed with 110 Connection timed out"}) {
    EXPECT_THAT(Hint(DistBackendError(error)), AllOf(HasSubstr("NCCL_IB_HCA"), HasSubstr("NCCL_IB_DISABLE=1")))
        << error;
  }
}

// Texts of the libraries' documentation and issues; RCCL's failures have NCCL's texts.
TEST(NetworkHint, OtherLibraries_HaveTheirVariables) {
  EXPECT_THAT(
      Hint(DistBackendError("socketPollConnect: ..."), "librccl.so.1(+0x1b2)"),
      AllOf(HasSubstr("RCCL could not connect over TCP: set NCCL_SOCKET_IFNAME"), Not(HasSubstr(" NCCL could"))));
  EXPECT_THAT(Hint("RuntimeError: HcclAllgather, error code is 6",
                   "[ERROR] HCCL(17528,python3) wait socket establish timeout, role[1] rank[1] timeout[120 s]\n"
                   "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time."),
              AllOf(HasSubstr("HCCL could not connect: set HCCL_SOCKET_IFNAME"), HasSubstr("eth1")));
  EXPECT_THAT(Hint("", "|CCL_ERROR| internal_kvs.cpp:289 fill_local_host_ip: can't find interface  to get host IP"),
              HasSubstr("oneCCL could not connect over TCP: set CCL_KVS_IFACE"));
  EXPECT_THAT(Hint("", "|CCL_ERROR| atl_ofi.cpp:237 init: can't find suitable provider"),
              AllOf(HasSubstr("oneCCL has no network provider: set FI_PROVIDER"), Not(HasSubstr("eth1"))));
}

TEST(NetworkHint, OtherFailures_HaveNone) {
  for (const std::string& message :
       {DistBackendError("Error while creating shared memory segment /dev/shm/nccl-Bq3Kzv (size 33030528)"),
        DistBackendError(""), std::string("ValueError: socketPollConnect"),
        std::string("NCCL error: remote process exited or there was a network error")}) {
    EXPECT_EQ(Hint(message), "") << message;
  }
}

}  // namespace

}  // namespace ddprun::launcher

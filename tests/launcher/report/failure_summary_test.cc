#include "launcher/report/failure_summary.h"

#include <gmock/gmock.h>
#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/testing/text_proto.h"

namespace ddprun::launcher {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

rendezvous::WorkerFailure KilledWorker() {
  return TextProto(
      "host: 'node-b' rank: 3 local_rank: 1 pid: 77 signal: 9 at { seconds: 1700000000 }"
      "ran_for { seconds: 12 nanos: 345000000 }",
      rendezvous::NewFailure());
}

rendezvous::WorkerFailure FailedScript() {
  rendezvous::WorkerFailure failure = KilledWorker();
  failure.clear_signal();
  return TextProto(
      R"pb(rank: 2
           local_rank: 0
           pid: 76
           exit_code: 1
           message: "ValueError: bad input"
           traceback: "Traceback (most recent call last):\n  File \"x.py\", line 1\nValueError: bad input"
           error_file: "/logs/0/error.json")pb",
      failure);
}

FailureReport Report(const rendezvous::WorkerFailure& cause) {
  FailureReport report;
  report.entrypoint = "train.py";
  report.verdict.set_reason("rank 3 on node-b failed and no restarts are left");
  *report.verdict.mutable_first_cause() = cause;
  report.verdict.set_exit_code(rendezvous::ExitStatus(cause));
  report.time_zone = absl::UTCTimeZone();
  return report;
}

TEST(FailureSummary, KilledWorker_IsShownWhole) {
  EXPECT_EQ(FailureSummary(Report(KilledWorker())), R"(============================================================
train.py FAILED
rank 3 on node-b failed and no restarts are left
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2023-11-14_22:13:20
  host      : node-b
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 77) (SIGKILL)
  ran for   : 12.3s
  error_file: <N/A>
  message   : Signal 9 (SIGKILL) received by PID 77
============================================================
)");
}

TEST(FailureSummary, WorkerThatReportedProgress_SaysWhereItWas) {
  rendezvous::WorkerFailure failure = KilledWorker();
  failure.set_progress("last reported step 120, phase backward, loss 2.31, 350ms before it ended");
  const std::string summary = FailureSummary(Report(failure));
  EXPECT_TRUE(absl::StrContains(summary,
                                "  error_file: <N/A>\n"
                                "  progress  : last reported step 120, phase backward, loss 2.31, 350ms before it\n"
                                "              ended\n"
                                "  message   : "))
      << summary;
}

TEST(FailureSummary, FailedScriptAndAnother_AreShownInThatOrder) {
  FailureReport report = Report(FailedScript());
  report.others = {KilledWorker()};
  const std::string summary = FailureSummary(report);
  size_t at = 0;
  for (const char* part :
       {"Root Cause", "[0]:\n", "rank      : 2 (local_rank: 0)\n", "exitcode  : 1 (pid: 76)\n",
        "error_file: /logs/0/error.json",
        "message   : ValueError: bad input\n  traceback : Traceback (most recent call last):\n      File \"x.py\", "
        "line 1\n",
        "Other Failures:\n", "[1]:\n", "rank      : 3 (local_rank: 1)\n", "(SIGKILL)"}) {
    at = summary.find(part, at);
    ASSERT_NE(at, std::string::npos) << part << " is missing in " << summary;
  }
}

TEST(FailureSummary, Success_SaysNothing) {
  FailureReport report = Report(KilledWorker());
  report.verdict.set_succeeded(true);
  EXPECT_EQ(FailureSummary(report), "");
}

TEST(FailureSummary, NoWorkerToBlame_GivesTheReason) {
  FailureReport report = Report(KilledWorker());
  report.verdict.clear_first_cause();
  report.verdict.set_reason("only 1 of 2 nodes came within 10m0s");
  EXPECT_THAT(FailureSummary(report), AllOf(HasSubstr("\ntrain.py FAILED\nonly 1 of 2 nodes came within 10m0s\n==="),
                                            Not(HasSubstr("Root Cause"))));
}

TEST(FailureSummary, OddCauses) {
  EXPECT_THAT(FailureSummary(Report(TextProto("host: 'node-b' message: 'no heartbeat'", rendezvous::NewFailure()))),
              AllOf(HasSubstr("  host      : node-b\n  message   : no heartbeat\n"), Not(HasSubstr("rank      :")),
                    Not(HasSubstr("time      :"))))
      << "a lost node";
  EXPECT_THAT(FailureSummary(Report(TextProto("oom_killed: true", KilledWorker()))), HasSubstr("OOM-killed"));
  EXPECT_THAT(
      FailureSummary(Report(TextProto("signal: 0 pid: 0 exit_code: 127 restartable: false", KilledWorker()))),
      AllOf(HasSubstr("exitcode  : 127 (pid: none)\n"), HasSubstr("no such program"), Not(HasSubstr("ran for"))));
  FailureReport report = Report(KilledWorker());
  report.others = {KilledWorker()};
  EXPECT_THAT(FailureSummary(report), Not(HasSubstr("Other Failures"))) << "the cause is not repeated";
}

TEST(FailureSummary, LostPeers_AreNamedAsConsequences) {
  FailureReport report = Report(FailedScript());
  report.others = {TextProto("signal: 0 exit_code: 1 message: 'Connection closed by peer'", KilledWorker())};
  EXPECT_THAT(FailureSummary(report), HasSubstr("  message   : Connection closed by peer\n"
                                                "  cause     : consequence: lost its peers\n==="));
  *report.verdict.mutable_first_cause() = TextProto("rank: 7", report.others[0]);
  EXPECT_THAT(FailureSummary(report), AllOf(HasSubstr("Other Failures"), Not(HasSubstr("consequence"))))
      << "nothing explains it";
}

TEST(FailureSummary, CoreDump_IsAddedToTheSignal) {
  EXPECT_THAT(FailureSummary(Report(TextProto("message: 'core dumped'", KilledWorker()))),
              HasSubstr("message   : Signal 9 (SIGKILL) received by PID 77; core dumped\n"));
}

TEST(FailureSummary, ManyOthers_AreCounted) {
  FailureReport report = Report(FailedScript());
  for (int i = 0; i < 100; ++i) report.others.push_back(TextProto(absl::StrCat("pid: ", 1000 + i), KilledWorker()));
  EXPECT_THAT(FailureSummary(report), AllOf(HasSubstr("[16]:"), Not(HasSubstr("[17]:")), HasSubstr("and 84 more\n")));
}

TEST(FailureSummary, LongMessage_IsWrappedAndHostileTextTamed) {
  rendezvous::WorkerFailure failure = FailedScript();
  failure.set_message("");
  for (int i = 0; i < 60; ++i) absl::StrAppend(failure.mutable_message(), "word", i, " ");
  failure.set_traceback("\x1b]0;owned\x07\nline two\xff");
  failure.set_host("evil\nhost");
  FailureReport report = Report(failure);
  report.verdict.set_reason(failure.message());
  const std::string summary = FailureSummary(report);
  for (const absl::string_view line : absl::StrSplit(summary, '\n')) EXPECT_LE(line.size(), 80) << line;
  EXPECT_TRUE(absl::StrContains(summary, "word59"));
  EXPECT_TRUE(absl::StrContains(summary, "evil host"));
  EXPECT_EQ(summary.find('\x1b'), std::string::npos);
  EXPECT_EQ(summary.find('\x07'), std::string::npos);
}

}  // namespace
}  // namespace ddprun::launcher

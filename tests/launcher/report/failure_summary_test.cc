#include "launcher/report/failure_summary.h"

#include <gmock/gmock.h>
#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/core/messages.h"
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

using hosts::v1::JobFailure;

JobFailure Report(const rendezvous::WorkerFailure& cause) {
  JobFailure report;
  report.set_entrypoint("train.py");
  report.mutable_verdict()->set_reason("rank 3 on node-b failed and no restarts are left");
  *report.mutable_verdict()->mutable_first_cause() = cause;
  report.mutable_verdict()->set_exit_code(rendezvous::ExitStatus(cause));
  return report;
}

std::string Summary(const JobFailure& report) { return FailureSummary(report, absl::UTCTimeZone()); }

TEST(FailureSummary, KilledWorker_AllFactsAreShown) {
  EXPECT_EQ(Summary(Report(KilledWorker())), R"(============================================================
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

TEST(FailureSummary, StuckWorker_HasNoExitCode) {
  rendezvous::WorkerFailure failure = KilledWorker();
  failure.set_restartable(false);
  failure.set_message("alive 30s after SIGKILL; state D");
  const std::string summary = Summary(Report(failure));
  EXPECT_TRUE(absl::StrContains(summary, "  exitcode  : <N/A> (pid: 77)\n")) << summary;
  EXPECT_TRUE(absl::StrContains(summary, "  message   : it is stuck in the kernel: alive 30s after SIGKILL; state D\n"))
      << summary;
}

TEST(FailureSummary, Progress_Reported_IsShown) {
  rendezvous::WorkerFailure failure = KilledWorker();
  failure.set_progress("last reported step 120, phase backward, loss 2.31, 350ms before it ended");
  const std::string summary = Summary(Report(failure));
  EXPECT_TRUE(absl::StrContains(summary,
                                "  error_file: <N/A>\n"
                                "  progress  : last reported step 120, phase backward, loss 2.31, 350ms before it\n"
                                "              ended\n"
                                "  message   : "))
      << summary;
}

TEST(FailureSummary, SeveralFailures_FirstCauseComesFirst) {
  JobFailure report = Report(FailedScript());
  *report.add_others() = KilledWorker();
  const std::string summary = Summary(report);
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

TEST(FailureSummary, Hang_NotOver_IsShownBeforeTheCause) {
  JobFailure report = Report(KilledWorker());
  report.set_hang("rank 3 on node-b waits for a lock in load_batch; ranks 0-2 and 4-7 wait for it in all_reduce");
  EXPECT_THAT(Summary(report),
              HasSubstr("no restarts are left\n"
                        "Before the end: rank 3 on node-b waits for a lock in load_batch; ranks 0-2 and\n"
                        "4-7 wait for it in all_reduce\n---"));
  const std::vector<HostFailure> hosts = {{"a", "a", Report(KilledWorker())}, {"b", "b", report}};
  EXPECT_THAT(FailureSummary(hosts, absl::UTCTimeZone()), HasSubstr("\nBefore the end: rank 3 on node-b"))
      << "a node may not have received it";
}

TEST(FailureSummary, Success_IsEmpty) {
  JobFailure report = Report(KilledWorker());
  report.mutable_verdict()->set_succeeded(true);
  EXPECT_EQ(Summary(report), "");
}

TEST(FailureSummary, NoFailedWorker_ShowsTheReason) {
  JobFailure report = Report(KilledWorker());
  report.mutable_verdict()->clear_first_cause();
  report.mutable_verdict()->set_reason("only 1 of 2 nodes came within 10m0s");
  EXPECT_THAT(Summary(report), AllOf(HasSubstr("\ntrain.py FAILED\nonly 1 of 2 nodes came within 10m0s\n==="),
                                     Not(HasSubstr("Root Cause"))));
}

TEST(FailureSummary, FailureSummary_OddCauses_AreReadable) {
  EXPECT_THAT(Summary(Report(TextProto("host: 'node-b' message: 'no heartbeat'", rendezvous::NewFailure()))),
              AllOf(HasSubstr("  host      : node-b\n  message   : no heartbeat\n"), Not(HasSubstr("rank      :")),
                    Not(HasSubstr("time      :"))))
      << "a lost node";
  EXPECT_THAT(Summary(Report(TextProto("oom_killed: true", KilledWorker()))), HasSubstr("OOM-killed"));
  EXPECT_THAT(
      Summary(Report(TextProto("signal: 0 pid: 0 exit_code: 127 restartable: false", KilledWorker()))),
      AllOf(HasSubstr("exitcode  : 127 (pid: none)\n"), HasSubstr("no such program"), Not(HasSubstr("ran for"))));
  JobFailure report = Report(KilledWorker());
  *report.add_others() = KilledWorker();
  EXPECT_THAT(Summary(report), Not(HasSubstr("Other Failures"))) << "the cause is not repeated";
}

TEST(FailureSummary, LostPeers_AreNamedAsConsequences) {
  JobFailure report = Report(FailedScript());
  *report.add_others() = TextProto("signal: 0 exit_code: 1 message: 'Connection closed by peer'", KilledWorker());
  EXPECT_THAT(Summary(report), HasSubstr("  message   : Connection closed by peer\n"
                                         "  cause     : consequence: lost its peers\n==="));
  *report.mutable_verdict()->mutable_first_cause() = TextProto("rank: 7", report.others(0));
  EXPECT_THAT(Summary(report), AllOf(HasSubstr("Other Failures"), Not(HasSubstr("consequence"))))
      << "nothing explains it";
}

TEST(FailureSummary, CoreDump_IsAddedToTheSignal) {
  EXPECT_THAT(Summary(Report(TextProto("message: 'core dumped'", KilledWorker()))),
              HasSubstr("message   : Signal 9 (SIGKILL) received by PID 77; core dumped\n"));
}

TEST(FailureSummary, ManyOthers_AreCounted) {
  JobFailure report = Report(FailedScript());
  for (int i = 0; i < 100; ++i) *report.add_others() = TextProto(absl::StrCat("pid: ", 1000 + i), KilledWorker());
  EXPECT_THAT(Summary(report), AllOf(HasSubstr("[16]:"), Not(HasSubstr("[17]:")), HasSubstr("and 84 more\n")));
}

TEST(FailureSummary, LongOrHostileMessage_IsWrappedAndEscaped) {
  rendezvous::WorkerFailure failure = FailedScript();
  failure.set_message("");
  for (int i = 0; i < 60; ++i) absl::StrAppend(failure.mutable_message(), "word", i, " ");
  failure.set_traceback("\x1b]0;owned\x07\nline two\xff");
  failure.set_host("evil\nhost");
  JobFailure report = Report(failure);
  report.mutable_verdict()->set_reason(failure.message());
  const std::string summary = Summary(report);
  for (const absl::string_view line : absl::StrSplit(summary, '\n')) EXPECT_LE(line.size(), 80) << line;
  EXPECT_TRUE(absl::StrContains(summary, "word59"));
  EXPECT_TRUE(absl::StrContains(summary, "evil host"));
  EXPECT_EQ(summary.find('\x1b'), std::string::npos);
  EXPECT_EQ(summary.find('\x07'), std::string::npos);
}

rendezvous::WorkerFailure Failure(int rank, const std::string& host) {
  rendezvous::WorkerFailure failure = rendezvous::NewFailure();
  failure.set_rank(rank);
  failure.set_local_rank(0);
  failure.set_pid(100 + rank);
  failure.set_exit_code(1);
  failure.set_host(host);
  return failure;
}

// Rank 2 on node-b is the cause; rank `other` failed on this host as well.
HostFailure On(const std::string& name, int other, const std::string& reason = "rank 2 failed") {
  const std::string host = absl::StrCat("node-", name);
  JobFailure report;
  report.set_entrypoint("train.py");
  report.mutable_verdict()->set_reason(reason);
  *report.mutable_verdict()->mutable_first_cause() = Failure(2, "node-b");
  *report.add_others() = Failure(other, host);
  report.set_interpreter(absl::StrCat("/", name, "/python"));
  return {name, host, report};
}

std::string Summary(const std::vector<HostFailure>& hosts) { return FailureSummary(hosts, absl::UTCTimeZone()); }

TEST(FailureSummary, Hosts_AreOneJob) {
  const std::string summary = Summary({On("a", 0), On("b", 2), On("c", 5)});
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(summary, "train.py FAILED")).size(), 2) << summary;
  EXPECT_THAT(summary, AllOf(HasSubstr("\nOther Failures:\n[1]:\n"), HasSubstr("rank      : 0 "),
                             HasSubstr("rank      : 5 "), Not(HasSubstr("[3]:")), Not(HasSubstr("a:\n"))));
  EXPECT_THAT(summary, HasSubstr("Python: /b/python\n")) << "of the host with the root cause";
}

TEST(FailureSummary, Hosts_DifferentVerdicts_AreShownEach) {
  EXPECT_THAT(Summary({On("a", 0), On("c", 5, "lost the server"), On("b", 2)}),
              ::testing::MatchesRegex("a, b:\n=+\n(.|\n)*rank 2 failed\n(.|\n)*c:\n=+\n.*\nlost the server\n(.|\n)*"));
}

}  // namespace
}  // namespace ddprun::launcher

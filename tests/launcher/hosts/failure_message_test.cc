#include "launcher/hosts/failure_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::launcher {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  FailureReport report;
  report.entrypoint = "train.py";
  report.verdict.set_reason(reason);
  *report.verdict.mutable_first_cause() = Failure(2, "node-b");
  report.others = {Failure(other, host)};
  report.interpreter = absl::StrCat("/", name, "/python");
  return {name, host, ToMessage(report)};
}

std::string Summary(const std::vector<HostFailure>& hosts) { return JobSummary(hosts, absl::UTCTimeZone()); }

TEST(JobSummary, Hosts_AreOneJob) {
  const std::string summary = Summary({On("a", 0), On("b", 2), On("c", 5)});
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(summary, "train.py FAILED")).size(), 2) << summary;
  EXPECT_THAT(summary, AllOf(HasSubstr("\nOther Failures:\n[1]:\n"), HasSubstr("rank      : 0 "),
                             HasSubstr("rank      : 5 "), Not(HasSubstr("[3]:")), Not(HasSubstr("a:\n"))));
  EXPECT_THAT(summary, HasSubstr("Python: /b/python\n")) << "of the host with the root cause";
}

TEST(JobSummary, HostsWithOtherVerdicts_AreShown) {
  EXPECT_THAT(Summary({On("a", 0), On("c", 5, "lost the server"), On("b", 2)}),
              ::testing::MatchesRegex("a, b:\n=+\n(.|\n)*rank 2 failed\n(.|\n)*c:\n=+\n.*\nlost the server\n(.|\n)*"));
}

}  // namespace
}  // namespace ddprun::launcher

// ddprunctl's pure parts: command line, tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ddprunctl/ctl_options.h"
#include "ddprunctl/tables.h"
#include "tests/testing/text_proto.h"

namespace ddprun::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

absl::StatusOr<CommandLine> Parse(const std::string& line, std::map<std::string, std::string> environment = {}) {
  return ParseCommandLine(absl::StrSplit(line, ' ', absl::SkipEmpty()),
                          [&](const char* name) { return environment[name]; });
}

TEST(CtlOptionsTest, RightLines_AreTaken) {
  const auto resize = Parse("resize job7 2:4 --server=a,[::1]:7,b:9 --output json");
  ASSERT_TRUE(resize.ok()) << resize.status();
  EXPECT_EQ(resize->options.command, "resize");
  EXPECT_EQ(resize->options.job_id, "job7");
  EXPECT_EQ(resize->options.min_nodes, 2);
  EXPECT_EQ(resize->options.max_nodes, 4);
  EXPECT_EQ(absl::StrJoin(resize->options.servers, " "), "a:29400 [::1]:7 b:9");
  EXPECT_TRUE(resize->options.json);
  const auto events = Parse("--token-file /t events --follow --after=7");
  ASSERT_TRUE(events.ok()) << events.status();
  EXPECT_TRUE(events->options.follow);
  EXPECT_EQ(events->options.after, 7u);
  EXPECT_EQ(events->options.job_id, "");
  EXPECT_EQ(events->options.credentials.token_file, "/t");
  EXPECT_EQ(Parse("resize j 3")->options.min_nodes, 3);
  EXPECT_EQ(Parse("resize j 3")->options.max_nodes, 3);
}

TEST(CtlOptionsTest, Server_FlagThenDdprunThenTorchrunsVariable) {
  const std::map<std::string, std::string> both = {{"DDPRUN_SERVER", "d:1"}, {"PET_RDZV_ENDPOINT", "p:2"}};
  EXPECT_EQ(Parse("jobs")->options.servers[0], "127.0.0.1:29400");
  EXPECT_EQ(Parse("jobs", {{"PET_RDZV_ENDPOINT", "p"}})->options.servers[0], "p:29400");
  EXPECT_EQ(Parse("jobs", both)->options.servers[0], "d:1");
  EXPECT_EQ(Parse("jobs --server=f:3", both)->options.servers[0], "f:3");
}

TEST(CtlOptionsTest, Parse_InvalidLine_ErrorNamesIt) {
  struct Case {
    const char* line;
    const char* problem;
  };
  for (const Case& c : std::vector<Case>{{"", "subcommand"},
                                         {"jbos", "jbos"},
                                         {"stop", "JOB is required"},
                                         {"stop a b", "b"},
                                         {"kick j", "NODE is required"},
                                         {"resize j 0", "NODES is 0;"},
                                         {"resize j 4:2", "NODES is 4:2;"},
                                         {"resize j 1:2:3", "NODES is 1:2:3;"},
                                         {"resize j x", "NODES is x;"},
                                         {"events --after=-1", "--after"},
                                         {"jobs --output=xml", "--output"},
                                         {"jobs --server=a:b:c", "--server:"},
                                         {"jobs --server=,", "--server: no server is named"},
                                         {"completion tcsh", "SHELL"}}) {
    const auto line = Parse(c.line);
    ASSERT_FALSE(line.ok()) << c.line;
    EXPECT_TRUE(absl::StrContains(line.status().message(), c.problem)) << c.line << ": " << line.status();
    EXPECT_THAT(line.status().message(), Not(HasSubstr("\n")));
  }
}

TEST(CtlOptionsTest, Completion_HasEveryCommandAndFlag) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = Parse(std::string("completion ") + shell)->answer;
    for (const char* word : {"jobs", "undrain", "completion", "server", "tls-ca"}) {
      EXPECT_TRUE(absl::StrContains(script, word)) << shell << " lacks " << word;
    }
  }
}

v1::Node SampleNode() {
  return TextProto<v1::Node>(R"(
    node_id: "aa11" host: "node-a" slots: 8 state: STATE_RUNNING group_rank: 1 connected: true
    last_heard { nanos: 250000000 } progress { step: 12 phase: "forward" loss: 0.5 }
    progress { local_rank: 3 step: 11 phase: "back\nward" })");
}

TEST(CtlTablesTest, Nodes_ShowTheSlowestRank) {
  EXPECT_EQ(NodesTable({{"j", SampleNode()}}),
            "JOB  NODE  HOST    STATE    RANK  WORKERS  STEP  PHASE      LOSS  HEARD\n"
            "j    aa11  node-a  running  1     8        11    back ward  -     200ms\n");
}

TEST(CtlTablesTest, RankThatStands_SaysForHowLong) {
  v1::Node node = SampleNode();
  v1::RankProgress* rank = node.mutable_progress(1);
  rank->set_phase("exiting");
  rank->mutable_ago()->set_seconds(370);
  EXPECT_THAT(NodesTable({{"j", node}}), HasSubstr(" exiting for 6m10s "));
}

TEST(CtlTablesTest, StateOfANewerServer_IsItsNumber) {
  v1::Job job;
  job.set_state(static_cast<v1::Job::State>(77));
  EXPECT_THAT(JobsTable({job}), HasSubstr("state 77"));
  job.set_state(v1::Job::STATE_LAST_CALL);
  EXPECT_THAT(DescribeJob(job), HasSubstr("last call"));
}

TEST(CtlTablesTest, Times_SayWhenNoStepWasReported) {
  auto job = TextProto<v1::Job>("goodput { starting { seconds: 45 } }");
  EXPECT_THAT(DescribeJob(job), HasSubstr("starting 45s (no step reported yet), training 0"));
  job.mutable_goodput()->mutable_training()->set_seconds(5);
  EXPECT_THAT(DescribeJob(job), HasSubstr("starting 45s, training 5s"));
}

TEST(CtlTablesTest, FailedJob_HasTheTraceback) {
  const auto job = TextProto<v1::Job>(R"(
    verdict { exit_code: 1 first_cause { traceback: "Traceback:\n  File \"x.py\"\x1b[2J\nValueError: bad" } })");
  EXPECT_THAT(DescribeJob(job), HasSubstr("exit code  1\n"
                                          "traceback\n  Traceback:\n    File \"x.py\"?[2J\n  ValueError: bad\n"));
}

TEST(CtlTablesTest, Event_IsOneLine) {
  const auto event = TextProto<v1::Event>(R"(
    number: 12 time { seconds: 1700000000 } kind: "node.lost" job_id: "j" round: 3 host: "node-a"
    detail: "node node-a lost:\x1b[2J\nx")");
  EXPECT_EQ(EventLine(event).find('\n'), EventLine(event).size() - 1);
  EXPECT_THAT(EventLine(event), StartsWith("12  2023-11-14T22:13:20.000Z  node.lost  j  round 3  node-a  node"));
  EXPECT_THAT(EventLine(event), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace ddprun::ctl

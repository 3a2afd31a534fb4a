// ddprunctl's pure parts: command line, tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ddprunctl/ctl_options.h"
#include "ddprunctl/output_view.h"
#include "ddprunctl/tables.h"
#include "proto/equal.h"
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
  const auto stacks = Parse("stacks --rank=3,7 j --native");
  ASSERT_TRUE(stacks.ok()) << stacks.status();
  EXPECT_EQ(stacks->options.job_id, "j");
  EXPECT_EQ(stacks->options.ranks, (std::vector<int32_t>{3, 7}));
  EXPECT_TRUE(stacks->options.native);
  const auto logs = Parse("logs j --rank=3 --follow --since=5m --lines 7");
  ASSERT_TRUE(logs.ok()) << logs.status();
  EXPECT_TRUE(logs->options.follow);
  EXPECT_EQ(logs->options.since, absl::Minutes(5));
  EXPECT_EQ(logs->options.lines, 7u);
  EXPECT_TRUE(Parse("top j --once")->options.once);
  EXPECT_THAT(Parse("logs j --since=-1s").status().message(), HasSubstr("--since is -1s; give a time such as"));
  EXPECT_FALSE(Parse("logs j --since=5").ok());
  EXPECT_FALSE(Parse("logs").ok());
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
                                         {"stacks", "JOB is required"},
                                         {"stacks j --rank=-1", "--rank"},
                                         {"stacks j --rank=a", "--rank"},
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

TEST(CtlTablesTest, Stacks_EqualPythonStacks_AreFolded) {
  v1::InspectResponse stacks;
  const auto add = [&](const char* rank) { *stacks.add_ranks() = TextProto<v1::RankStacks>(rank); };
  add(R"(rank: 0 host: "a" pid: 10 state: "sleeps; state S" text: "main thread:\n  in f\nchild 11 (x): runs\n")");
  add(R"(rank: 1 host: "a" pid: 12 state: "waits for a lock; state S" text: "main thread:\n  in g\n" native: "n\n")");
  add(R"(rank: 2 host: "b" pid: 10 state: "sleeps; state S" text: "main thread:\n  in f\nchild 9 (y): sleeps\n")");
  add(R"(rank: 3 host: "b" pid: 13 state: "runs; state R" text: "main thread:\n  in f\nchild 8 (x): runs\n")");
  add(R"(rank: 4 host: "b" pid: 14 state: "is stopped (SIGSTOP); state T")");
  add(R"(rank: 5 host: "c" state: "not running")");
  add(R"(rank: 6 host: "c" state: "not running")");
  *stacks.add_silent() = TextProto<v1::InspectResponse::SilentNode>(R"(host: "d" reason: "did not answer\nin time")");
  EXPECT_EQ(StacksText(stacks),
            "ranks 0, 2-3 (2 hosts): runs; state R (rank 3), sleeps; state S (ranks 0, 2)\n"
            "  main thread:\n    in f\n  child 11 (x): runs\n\n"
            "rank 1 (a, pid 12): waits for a lock; state S\n"
            "  main thread:\n    in g\n  n\n\n"
            "rank 4 (b, pid 14): is stopped (SIGSTOP); state T\n"
            "  no Python stack\n\n"
            "ranks 5-6 (c): not running\n\n"
            "node d: no answer: did not answer in time\n");
}

TEST(CtlTablesTest, Stacks_FoldedWithNative_AddressesDoNotCount) {
  v1::InspectResponse stacks;
  for (int rank = 0; rank < 6; ++rank) {
    v1::RankStacks* const added = stacks.add_ranks();
    *added = TextProto<v1::RankStacks>(R"(host: "a" pid: 1 text: "main:\n  f\n")");
    added->set_rank(rank);
    added->set_state(absl::StrCat("state ", rank));
    added->set_native(absl::StrCat("native:\n  #0 0x7f0", rank, rank == 1 ? " read" : " poll", " (c+0x1)\n  #1\n"));
  }
  EXPECT_EQ(StacksText(stacks),
            "ranks 0-5 (a): state 0 (rank 0), state 1 (rank 1), state 2 (rank 2), state 3 (rank 3), 2 more\n"
            "  main:\n    f\n"
            "  ranks 0, 2-5:\n  native:\n    #0 poll (c+0x1)\n    #1\n"
            "  rank 1:\n  native:\n    #0 read (c+0x1)\n    #1\n\n");
}

TEST(CtlTablesTest, Usage_OneRowPerRank) {
  const auto usage = TextProto<v1::InspectResponse>(R"(
      usages { rank: 3 host: "node-b\x1b" pid: 7 cpu: 1.52 memory_bytes: 1610612736 io: 2048 net: 300.4 collectives: 12.34
               gpu: 0.987 gpu_memory_bytes: 85899345920 }
      usages { rank: 4 host: "c" }
      usages { rank: 5 host: "c" pid: 8 }
      silent { host: "d" reason: "not connected" })");
  EXPECT_EQ(UsageTable(usage),
            "RANK  HOST     PID  CPU          MEMORY   GPU  GPU MEMORY  NETWORK/s  FILES/s  COLLECTIVES/s\n"
            "3     node-b?  7    152%         1.5 GiB  99%  80.0 GiB    300 B      2.0 KiB  12.3\n"
            "4     c        -    not running  -        -    -           -          -        -\n"
            "5     c        8    0%           0        -    -           0          0        -\n"
            "node d: no answer: not connected\n");
}

// Texts of lines; notes follow in brackets.
std::string Lines(OutputView* view, const std::vector<OutputLine>& lines) {
  std::string text;
  for (const OutputLine& line : lines) absl::StrAppend(&text, LineText(line));
  for (const std::string& note : view->TakeNotes()) absl::StrAppend(&text, "(", note.substr(0, 50), ")\n");
  return text;
}
std::string Take(OutputView* view, const std::string& response, bool last = false) {
  return Lines(view, view->Take(TextProto<v1::InspectResponse>(response), last));
}

TEST(OutputViewTest, FirstAnswer_LastLinesOfEachStream) {
  OutputView view(2);
  EXPECT_EQ(Take(&view, R"(outputs { rank: 1 host: "b" text: "rest\n1\n2\n3\nno end" end: 9 gap: true }
                           outputs { rank: 1 host: "b" is_stderr: true text: "e\n" end: 2 }
                           outputs { rank: 2 host: "b" text: "rest\none\n" end: 9 gap: true })",
                 /*last=*/true),
            "[rank1 b]: 3\n[rank1 b]: no end\n[rank1 b]: e\n"
            "[rank2 b]: ... (some of its stdout is missing here: the node does not have it any more)\n"
            "[rank2 b]: one\n");
}

TEST(OutputViewTest, Followed_WholeLinesAndPositions) {
  OutputView view(20);
  v1::Inspect question;
  view.AddPositions(&question);
  EXPECT_EQ(question.after_size(), 0);
  EXPECT_EQ(
      Take(&view, R"(outputs { rank: 0 host: "a" text: "on" end: 2 } outputs { rank: 0 host: "a" text: "e\ntwo" end: 7 }
                           outputs { rank: 1 host: "a" end: 3 })"),
      "[rank0 a]: one\n");
  EXPECT_EQ(Take(&view, R"(outputs { rank: 0 host: "a" text: "!\n\nthr" end: 12 })"), "[rank0 a]: two!\n[rank0 a]: \n");
  view.AddPositions(&question);
  EXPECT_EQ(question, TextProto<v1::Inspect>("after { end: 12 } after { rank: 1 end: 3 }"));
  EXPECT_EQ(Take(&view, R"(outputs { rank: 0 host: "a" text: "part of a line\nfour" end: 99 gap: true })"),
            "[rank0 a]: thr\n"
            "[rank0 a]: ... (some of its stdout is missing here: the node does not have it any more)\n");
  EXPECT_EQ(Lines(&view, view.Finish()), "[rank0 a]: four\n");
  EXPECT_EQ(Lines(&view, view.Finish()), "");
}

TEST(OutputViewTest, StreamsAndNodesWithoutOutput_AreToldOnce) {
  OutputView view(20);
  const std::string answer = R"(outputs { rank: 0 host: "a" } outputs { rank: 1 host: "a" }
                                silent { host: "b\n" reason: "not connected" })";
  EXPECT_EQ(Take(&view, answer),
            "(the stdout of ranks 0-1 can't be shown: it does no)\n(node b: no answer: not connected)\n");
  EXPECT_EQ(Take(&view, answer), "");
  v1::Inspect question;
  view.AddPositions(&question);
  EXPECT_EQ(question.after_size(), 2) << "positions of 0: nothing is told again";
}

// Output comes from other users' programs.
TEST(OutputViewTest, HostileOutput_IsClean) {
  OutputView view(20);
  EXPECT_EQ(Take(&view, R"(outputs { rank: 0 host: "a" end: 1
                text: "\x1b[31mred\x1b[0m\n\x1b]0;title\x07\xff\n 1%\r 20%\r100%\r\n\x1b[\n\x1b[2" }
                )",
                 /*last=*/true),
            "[rank0 a]: red\n[rank0 a]: ?]0;title??\n[rank0 a]: 100%\n[rank0 a]: \n[rank0 a]: \n");
}

TEST(OutputViewTest, EndlessLine_IsCut) {
  OutputView view(20);
  v1::InspectResponse response;
  v1::RankOutput* const output = response.add_outputs();
  output->set_text(std::string(OutputView::kMaxLine + 5, 'x'));
  output->set_end(1);
  const std::vector<OutputLine> lines = view.Take(response, /*last=*/true);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].text.size(), OutputView::kMaxLine);
  EXPECT_EQ(lines[1].text, "xxxxx");
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

TEST(CtlTablesTest, HungJob_HasTheReport) {
  auto job = TextProto<v1::Job>(R"(hang { text: "rank 3 hangs\n  in f\x1b[2J" ranks: 3 at { seconds: 1700000000 } })");
  EXPECT_THAT(DescribeJob(job), HasSubstr("hang, reported 2023-11-14T22:13:20Z\n  rank 3 hangs\n    in f?[2J\n"));
  job.mutable_hang()->set_kind(v1::Hang::KIND_STRAGGLER);
  EXPECT_THAT(DescribeJob(job), HasSubstr("straggler, reported 2023-11-14T22:13:20Z\n"));
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

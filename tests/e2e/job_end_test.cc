// --on-end and --result: real launchers whose job ends.
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

using nlohmann::json;

class JobEndTest : public ::testing::Test {
 protected:
  // The command adds a line for each run: the name of the launcher and its input. Its workers must be gone.
  std::vector<std::string> Flags(std::vector<std::string> more = {}) const {
    more.push_back(absl::StrCat("--on-end=for f in ", dir_.path(), "/worker.*; do kill -0 $(cat $f) && echo $f; done >",
                                dir_.File("alive"), " 2>/dev/null; sed \"s/^/$NODE /\" >>", Ends()));
    more.push_back("--result=" + dir_.File("result.json"));
    return more;
  }
  std::string Ends() const { return dir_.File("ends"); }
  // Workers leave their process ids.
  std::string Worker(const std::string& script) const {
    return absl::StrCat(kSayRank, "echo $$ >", dir_.path(), "/worker.$RANK; ", script);
  }
  std::vector<std::string> Node(const std::string& script, std::vector<std::string> more = {}) const {
    return NodeFlags(port_, "2", 1, Flags(std::move(more)), Worker(script));
  }
  static std::map<std::string, std::string> Named(const std::string& name) { return {{"NODE", name}}; }

  // The summary, after all launchers have ended; `node`: the launcher that has run the command.
  json TheOnlyEnd(std::string* node = nullptr) const {
    const std::string text = ReadFile(Ends());
    EXPECT_EQ(Lines(text), 1) << text;
    const std::pair<std::string, std::string> run = absl::StrSplit(text, absl::MaxSplits(' ', 1));
    if (node != nullptr) *node = run.first;
    EXPECT_EQ(run.second, ReadFile(dir_.File("result.json")));
    EXPECT_EQ(ReadFile(dir_.File("alive")), "") << "workers still run";
    return json::parse(run.second, nullptr, /*allow_exceptions=*/false);
  }

  const TempDir dir_;
  const int port_ = FreePort();
};

TEST_F(JobEndTest, Success_TwoNodes_OneTellsIt) {
  Launcher a(Node("true"), Named("a")), b(Node("true"), Named("b"));
  ExpectEnd({&a, &b});
  std::string node;
  const json end = TheOnlyEnd(&node);
  EXPECT_EQ(end["job_id"], "job");
  EXPECT_EQ(end["entrypoint"], "sh");
  EXPECT_EQ(end["state"], "finished");
  EXPECT_EQ(end["verdict"]["succeeded"], true);
  EXPECT_EQ(end["node_count"], 2);
  EXPECT_EQ(end["world_size"], 2);
  EXPECT_LE(end["begin"], end["end"]);
  EXPECT_THAT((node == "a" ? a : b).Out(), HasSubstr("group=0/2"));
}

TEST_F(JobEndTest, Failure_OnTheOtherNode_IsNamedWithItsLastLines) {
  const std::string script =
      "if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then echo 'no access: api_key=abc123' >&2; exit 7; fi; "
      "if [ $RANK = 0 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exit 5; fi; exec sleep 1000";
  Launcher a(Node(script, {"--max-restarts=1"}), Named("a")), b(Node(script, {"--max-restarts=1"}), Named("b"));
  ExpectEnd({&a, &b}, 7);
  std::string node;
  const json end = TheOnlyEnd(&node);
  EXPECT_EQ(end["state"], "failed");
  EXPECT_EQ(end["restart_count"], 1);
  EXPECT_EQ(end["verdict"]["exit_code"], 7);
  EXPECT_EQ(end["verdict"]["first_cause"]["rank"], 1);
  EXPECT_EQ(end["verdict"]["first_cause"]["exit_code"], 7);
  EXPECT_THAT(end["verdict"]["first_cause"]["message"].get<std::string>(), HasSubstr("no access: api_key=***"));
  EXPECT_THAT((node == "a" ? a : b).Out(), HasSubstr("group=0/2"));
}

TEST_F(JobEndTest, NodeLost_WhileAnotherFails_SurvivorTellsIt) {
  const Rendezvousd server(port_);
  const std::string gate = dir_.File("gate");
  const std::string script = absl::StrCat("while [ ! -e ", gate, " ]; do sleep 0.02; done; exit 7");
  Launcher a(Node(script), Named("a")), b(Node(script), Named("b"));
  ASSERT_TRUE(AllSay({&a, &b}, "group=", 2));
  const bool a_is_first = absl::StrContains(a.Out(), "group=0/2");
  Launcher& first = a_is_first ? a : b;
  Launcher& second = a_is_first ? b : a;
  first.Signal(SIGKILL);
  first.Wait();
  Touch(gate);
  EXPECT_NE(second.Wait(), 0);
  std::string node;
  EXPECT_EQ(TheOnlyEnd(&node)["state"], "failed");
  EXPECT_EQ(node, a_is_first ? "b" : "a");
}

TEST_F(JobEndTest, Sigterm_ToAllNodes_OneTellsIt) {
  Launcher a(Node("exec sleep 1000"), Named("a")), b(Node("exec sleep 1000"), Named("b"));
  ASSERT_TRUE(AllSay({&a, &b}, "group=", 2));
  a.Signal(SIGTERM);
  b.Signal(SIGTERM);
  ExpectEnd({&a, &b}, 143);
  const json end = TheOnlyEnd();
  EXPECT_EQ(end["state"], "failed");
  EXPECT_EQ(end["verdict"]["exit_code"], 143);
}

TEST_F(JobEndTest, Sigterm_OneByOneToAnElasticJob_TheLastTellsIt) {
  const Rendezvousd server(port_);
  const auto flags = NodeFlags(port_, "1:2", 1, Flags(), Worker("exec sleep 1000"));
  Launcher a(flags, Named("a")), b(flags, Named("b"));
  ASSERT_TRUE(AllSay({&a, &b}, "group=0/2", 1));
  a.Signal(SIGTERM);
  ExpectEnd({&a}, 143);
  ASSERT_TRUE(AllSay({&b}, "group=0/1", 1));
  EXPECT_EQ(ReadFile(Ends()), "") << "the job goes on";
  b.Signal(SIGTERM);
  ExpectEnd({&b}, 143);
  std::string node;
  const json end = TheOnlyEnd(&node);
  EXPECT_EQ(node, "b");
  EXPECT_THAT(end["reason"].get<std::string>(), HasSubstr("received SIGTERM"));
}

TEST_F(JobEndTest, Sigterm_OnlyNode_TellsIt) {
  Launcher launcher(Standalone(2, Flags(), Worker("exec sleep 1000")), Named("a"));
  ASSERT_TRUE(AllSay({&launcher}, "group=0/1", 2));
  launcher.Signal(SIGTERM);
  ExpectEnd({&launcher}, 143);
  const json end = TheOnlyEnd();
  EXPECT_EQ(end["verdict"]["exit_code"], 143);
  EXPECT_EQ(end["world_size"], 2);
}

TEST_F(JobEndTest, Command_Fails_CodeStaysAndAWarningSaysSo) {
  Finished good(0, Standalone(1, {"--on-end=echo from the command; exit 3"}, "true"));
  EXPECT_THAT(good.Out(), HasSubstr("from the command\n"));
  EXPECT_THAT(good.Err(), HasSubstr("--on-end: the command exited with 3\n"));
}

TEST_F(JobEndTest, Command_Hangs_ASignalEndsIt) {
  Launcher launcher(Standalone(1, {"--on-end=echo started; sleep 1000"}, "exit 9"));
  ASSERT_TRUE(launcher.WaitForOut("started"));
  launcher.Signal(SIGINT);
  ExpectEnd({&launcher}, 9);
  EXPECT_THAT(launcher.Err(), HasSubstr("--on-end: the command was killed: the launcher received SIGINT"));
}

TEST_F(JobEndTest, Result_FolderIsMissing_IsRefusedAtTheStart) {
  Finished launcher(2, Standalone(1, {"--result=" + dir_.File("none/r.json")}, "echo started"));
  EXPECT_EQ(launcher.Out(), "");
  EXPECT_EQ(Lines(launcher.Err()), 1) << launcher.Err();
  EXPECT_THAT(launcher.Err(), HasSubstr(dir_.File("none") + ": No such file or directory"));
}

}  // namespace
}  // namespace ddprun::testing

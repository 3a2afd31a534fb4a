// ddprunctl against a real rendezvousd and real launchers.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"
#include "tests/security/certificates.h"

namespace ddprun::testing {
namespace {

constexpr char kServer[] = "rendezvous/daemon/rendezvousd";
constexpr char kCtl[] = "ddprunctl/ddprunctl";

class CtlTest : public ::testing::Test {
 protected:
  void StartServer(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {kServer, absl::StrCat("--listen=127.0.0.1:", port_)});
    server_ = std::make_unique<Process>(std::move(more));
    ASSERT_TRUE(server_->WaitForOut("listening on")) << server_->Err();
  }

  std::vector<std::string> CtlCommand(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {kCtl, absl::StrCat("--server=127.0.0.1:", port_)});
    return arguments;
  }

  struct Answer {
    int exit = 0;
    std::string out, err;
  };
  Answer Ctl(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {}) const {
    Process ctl(CtlCommand(std::move(arguments)), std::move(environment));
    const int exit = ctl.Wait();
    return {exit, ctl.Out(), ctl.Err()};
  }
  nlohmann::json Json(std::vector<std::string> arguments) const {
    arguments.push_back("--output=json");
    const Answer answer = Ctl(std::move(arguments));
    EXPECT_EQ(answer.exit, 0) << answer.err;
    return nlohmann::json::parse(answer.out, nullptr, false);
  }
  void Do(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {}) const {
    const Answer answer = Ctl(std::move(arguments), std::move(environment));
    EXPECT_EQ(answer.exit, 0) << answer.err;
  }
  // Fails with one line that has the reason, and no output.
  static void ExpectRefused(const Answer& answer, const std::string& why) {
    EXPECT_EQ(answer.exit, 1) << answer.err;
    EXPECT_THAT(answer.err, HasSubstr(why));
    EXPECT_EQ(Lines(answer.err), 1) << answer.err;
    EXPECT_EQ(answer.out, "");
  }
  // The job has this state, round and number of nodes.
  bool JobIs(const std::string& state, int nodes) const {
    const nlohmann::json job = Json({"show", "job"});
    return job.is_object() && job["state"] == state && job["node_count"] == nodes;
  }

  // A launcher whose worker prints its rank and keeps running.
  std::unique_ptr<Launcher> Node(const std::string& nnodes) const {
    return std::make_unique<Launcher>(
        NodeFlags(port_, nnodes, 1, {"--max-restarts=3"}, std::string(kSayRank) + "exec sleep 1000"));
  }

  const int port_ = FreePort();
  std::unique_ptr<Process> server_;
};

TEST_F(CtlTest, RunningJob_IsShownAndStopped) {
  StartServer();
  const auto a = Node("2"), b = Node("2");
  for (Launcher* node : {a.get(), b.get()}) ASSERT_TRUE(node->WaitForOut("/2 local=")) << node->Err();

  const Answer jobs = Ctl({"jobs"});
  EXPECT_EQ(jobs.exit, 0) << jobs.err;
  EXPECT_THAT(jobs.out, HasSubstr("running"));
  EXPECT_EQ(Lines(jobs.out), 2) << jobs.out;
  EXPECT_EQ(Json({"jobs"})["jobs"][0]["job_id"], "job");
  const nlohmann::json nodes = Json({"nodes"})["nodes"];
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0]["state"], "running");
  EXPECT_EQ(nodes[0]["job_id"], "job");
  EXPECT_EQ(Lines(Ctl({"spares"}).out), 1);

  Process watch(CtlCommand({"events", "--follow", "--output=json", "job"}));
  ASSERT_TRUE(watch.WaitForOut("round.assigned")) << watch.Err();
  Do({"stop", "job"});
  ExpectEnd({a.get(), b.get()}, 143);
  EXPECT_THAT(a->Err(), HasSubstr("stopped by 127.0.0.1"));
  EXPECT_TRUE(watch.WaitForOut("job.stopped")) << watch.Err();
  EXPECT_EQ(Json({"show", "job"})["verdict"]["exit_code"], 143);

  const Answer again = Ctl({"stop", "job"});
  EXPECT_EQ(again.exit, 1);
  EXPECT_THAT(again.err, HasSubstr("job job has ended: stopped by 127.0.0.1"));
  // The server closes its streams immediately.
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_TRUE(watch.WaitForErr("ddprunctl: lost the rendezvous server; trying again for 30s\n")) << watch.Err();
  std::string kinds;
  for (absl::string_view line : absl::StrSplit(watch.Out(), '\n', absl::SkipEmpty())) {
    kinds += nlohmann::json::parse(line)["kind"].get<std::string>() + " ";
  }
  EXPECT_TRUE(absl::StartsWith(kinds, "job.created node.joined node.joined round.assigned job.stopped ")) << kinds;
}

TEST_F(CtlTest, NoServerNamed_JobsOfLaunchersOnThisHostAreFound) {
  const auto say_rank = absl::StrCat(kSayRank, "exec sleep 1000");
  const std::string id = absl::StrCat("alone-", getpid()), hosted = absl::StrCat("hosted-", getpid());
  Launcher alone({"--standalone", "--rdzv-id", id, "--no-python", "sh", "-c", say_rank});
  Launcher host({"--nnodes=1", "--rdzv-id", hosted, absl::StrCat("--rdzv-endpoint=127.0.0.1:", port_), "--no-python",
                 "sh", "-c", say_rank});
  for (Launcher* launcher : {&alone, &host}) ASSERT_TRUE(launcher->WaitForOut("/1 local=")) << launcher->Err();
  const auto ctl = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), kCtl);
    Process process(std::move(arguments), {{"DDPRUN_SERVER", ""}, {"PET_RDZV_ENDPOINT", ""}});
    return Answer{process.Wait(), process.Out(), process.Err()};
  };
  const Answer jobs = ctl({"jobs"});
  EXPECT_EQ(jobs.exit, 0) << jobs.err;
  EXPECT_THAT(jobs.out, HasSubstr(id));
  EXPECT_THAT(jobs.out, HasSubstr(hosted));
  EXPECT_THAT(ctl({"show", hosted}).out, HasSubstr("running"));
  const Answer by_process = ctl({"show", absl::StrCat(alone.pid())});
  EXPECT_THAT(by_process.out, HasSubstr(id)) << by_process.err;
  EXPECT_EQ(ctl({"stop", id}).exit, 0);
  ExpectEnd({&alone}, 143);
  EXPECT_THAT(ctl({"jobs"}).out, Not(HasSubstr(id)));
  EXPECT_EQ(ctl({"stop", hosted}).exit, 0);
  ExpectEnd({&host}, 143);
}

TEST_F(CtlTest, Stacks_PythonWorkersOfTwoNodes_EqualOnesAreFolded) {
  StartServer();
  const TempDir dir;
  std::ofstream(dir.File("train.py")) << R"(import os, threading, time
def work():
    print("ready", flush=True)
    time.sleep(1000)
def load():
    lock = threading.Lock()
    lock.acquire()
    print("ready", flush=True)
    lock.acquire()
load() if os.environ["RANK"] == "3" else work()
)";
  const std::vector<std::string> flags = {"--nnodes=2", "--nproc-per-node=2", "--rdzv-id=job",
                                          absl::StrCat("--rdzv-endpoint=127.0.0.1:", port_), dir.File("train.py")};
  Launcher a(flags, {{"PYTHON_EXEC", "python3"}}), b(flags, {{"PYTHON_EXEC", "python3"}});
  ASSERT_TRUE(AllSay({&a, &b}, "ready", 4));

  Answer all;
  EXPECT_TRUE(Eventually([&] {
    all = Ctl({"stacks", "job", "--native"});
    return absl::StrContains(all.out, "): sleeps; state S\n") &&
           absl::StrContains(all.out, "waits for a lock; state S\n");
  })) << all.out
      << all.err;
  EXPECT_TRUE(absl::StartsWith(all.out, "ranks 0-2 (")) << all.out;
  EXPECT_THAT(all.out, AllOf(HasSubstr("\nrank 3 ("), HasSubstr("train.py\", line 4 in work\n"),
                             HasSubstr("train.py\", line 9 in load\n"), HasSubstr("main thread, native (")));
  EXPECT_EQ(Count(all.out, " in work\n"), 1) << all.out;

  nlohmann::json ranks = Json({"stacks", "job", "--rank=3"})["ranks"];
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0]["rank"], 3);
  const pid_t pid = ranks[0]["pid"].get<pid_t>();
  kill(pid, SIGSTOP);
  EXPECT_TRUE(Eventually([&] {
    all = Ctl({"stacks", "job", "--rank=3"});
    return absl::StrContains(all.out, absl::StrCat(", pid ", pid, "): is stopped (SIGSTOP); state T\n"));
  })) << all.out
      << all.err;

  ExpectRefused(Ctl({"stacks", "job", "--rank=1,4"}), "job job has no rank 4: its ranks are 0 to 3");
  EXPECT_EQ(Ctl({"stacks", "other"}).exit, 3);
  Do({"stop", "job"});
  ExpectEnd({&a, &b}, 143);
  ExpectRefused(Ctl({"stacks", "job"}), "has ended");
}

// Workers print through their launchers: node a's stderr to its log files, node b's stdout and stderr to the launcher's
// own, which is a pipe. Rank 1 fails once.
TEST_F(CtlTest, LogsAndTop_FollowedOverARestart_NothingIsMissing) {
  StartServer();
  const TempDir dir;
  // Rank 1 fails when rank 0 has printed its last line.
  const std::string script = absl::StrCat(
      "R=$TORCHELASTIC_RESTART_COUNT; i=0; "
      "while [ ! -e ",
      dir.File("step"),
      "$R ]; do i=$((i+1)); echo \"rank $RANK attempt $R line $i\" >&2; sleep 0.01; done; "
      "printf \"rank $RANK attempt $R ends after $i\" >&2; "
      "[ $R = 1 ] && exec sleep 2; [ $RANK = 0 ] && echo >",
      dir.File("ended"), " && exec sleep 1000; while [ ! -e ", dir.File("ended"), " ]; do sleep 0.01; done; exit 3");
  const auto flags = [&](const std::vector<std::string>& more) { return NodeFlags(port_, "2", 1, more, script); };
  Launcher a(flags({"--max-restarts=1", absl::StrCat("--log-dir=", dir.File("logs")), "--redirects=2"}));
  Launcher b(flags({"--max-restarts=1"}));
  ASSERT_TRUE(Eventually([&] { return Ctl({"logs", "job", "--lines=1"}).exit == 0; })) << a.Err() << b.Err();

  Process follow(CtlCommand({"logs", "job", "--follow", "--lines=1000000"}));
  ASSERT_TRUE(follow.WaitForOut("]: rank 0 attempt 0 line 30\n")) << follow.Err();
  ASSERT_TRUE(follow.WaitForOut("]: rank 1 attempt 0 line 30\n")) << follow.Err();
  Touch(dir.File("step0"));
  ASSERT_TRUE(follow.WaitForOut("]: rank 0 attempt 1 line 30\n")) << follow.Err();
  ASSERT_TRUE(follow.WaitForOut("]: rank 1 attempt 1 line 30\n")) << follow.Err();

  const Answer last = Ctl({"logs", "job", "--rank=1", "--lines=3"});
  EXPECT_EQ(Count(last.out, "rank 1 attempt 1 line "), 3) << last.out;
  EXPECT_EQ(Count(last.out, "\n"), 3) << last.out;
  EXPECT_THAT(last.err, HasSubstr("the stdout of rank 1 can't be shown"));
  EXPECT_THAT(Ctl({"logs", "job", "--since=1h"}).out, HasSubstr(" line 1\n"));
  const Answer top = Ctl({"top", "job"});
  EXPECT_EQ(top.exit, 0) << top.err;
  EXPECT_EQ(Lines(top.out), 3) << top.out;
  EXPECT_THAT(top.out, AllOf(HasSubstr("COLLECTIVES/s"), HasSubstr("MiB")));
  EXPECT_GT(Json({"top", "job", "--rank=1"})["usages"][0]["memory_bytes"], 0);

  Touch(dir.File("step1"));
  ExpectEnd({&a, &b, &follow});
  const std::string out = follow.Out();
  for (const int rank : {0, 1}) {
    for (const int attempt : {0, 1}) {
      const std::string prefix = absl::StrCat("]: rank ", rank, " attempt ", attempt, " ");
      const size_t end = out.find(absl::StrCat(prefix, "ends after "));
      ASSERT_NE(end, out.npos) << prefix << out << follow.Err();
      const int lines = atoi(out.c_str() + end + prefix.size() + strlen("ends after "));
      EXPECT_EQ(Count(out, absl::StrCat(prefix, "line ")), lines) << prefix;
    }
  }
  EXPECT_THAT(out, Not(HasSubstr("missing"))) << out;
  ExpectRefused(Ctl({"logs", "job", "--follow"}), "has ended");
}

TEST_F(CtlTest, Kick_SpareTakesTheNodesPlace) {
  StartServer();
  const auto a = Node("2"), b = Node("2");
  for (Launcher* node : {a.get(), b.get()}) ASSERT_TRUE(node->WaitForOut("round=1")) << node->Err();
  const auto c = Node("2");
  ASSERT_TRUE(Eventually([&] { return Json({"spares"})["nodes"].size() == 1; })) << c->Err();
  std::string victim;
  const nlohmann::json nodes = Json({"nodes", "job"});
  for (const auto& node : nodes["nodes"]) {
    if (node["group_rank"] == 1) victim = node["node_id"];
  }
  Do({"kick", "job", victim});
  EXPECT_TRUE(c->WaitForOut("round=2")) << c->Err();
  EXPECT_TRUE(Eventually([&] { return JobIs("running", 2); }));
  const Answer nobody = Ctl({"kick", "job", victim});
  EXPECT_EQ(nobody.exit, 3) << nobody.err;
  Do({"stop", "job"});
  ExpectEnd({c.get(), a.get(), b.get()}, 143);
}

TEST_F(CtlTest, Resize_JobGrowsAndShrinks) {
  StartServer();
  const auto a = Node("1");
  ASSERT_TRUE(a->WaitForOut("round=1")) << a->Err();
  const auto b = Node("1");
  ASSERT_TRUE(Eventually([&] { return Json({"spares"})["nodes"].size() == 1; })) << b->Err();
  Do({"resize", "job", "1:2"});
  ASSERT_TRUE(b->WaitForOut("rank=1/2")) << b->Err();
  Do({"resize", "job", "1"});
  ASSERT_TRUE(a->WaitForOut("round=3")) << a->Err();
  EXPECT_THAT(a->Out(), HasSubstr("rank=0/1 local=0/1 group=0/1 attempt=0 round=3"));
  EXPECT_TRUE(Eventually([&] { return Json({"spares"})["nodes"].size() == 1; })) << b->Err();
  Do({"stop", "job"});
  ExpectEnd({a.get(), b.get()}, 143);
}

TEST_F(CtlTest, Drain_OutlivesTheServer) {
  const TempDir folder;
  const std::string state = absl::StrCat("--state-dir=", folder.path());
  StartServer({state});
  Do({"drain", "node-a"});
  Do({"drain", "node-b"});
  Do({"undrain", "node-b"});
  server_->Signal(SIGTERM);
  ASSERT_EQ(server_->Wait(), 0);
  StartServer({state});
  EXPECT_TRUE(server_->WaitForErr("restored 0 jobs")) << server_->Err();
  const nlohmann::json hosts = Json({"hosts"})["hosts"];
  ASSERT_EQ(hosts.size(), 1u) << hosts;
  EXPECT_EQ(hosts[0]["name"], "node-a");
  EXPECT_EQ(hosts[0]["drained"], true);
  EXPECT_EQ(Lines(Ctl({"jobs"}).out), 1) << "the server's own record is no job";
  Do({"undrain", "node-a"});
}

TEST_F(CtlTest, Drain_HostWithoutNodes_Warns) {
  StartServer();
  const auto node = Node("1");
  ASSERT_TRUE(node->WaitForOut("round=1")) << node->Err();
  const std::string host = Json({"hosts"})["hosts"][0]["name"];
  const Answer known = Ctl({"drain", host});
  EXPECT_EQ(known.exit, 0) << known.err;
  EXPECT_EQ(known.err, "");
  const Answer typo = Ctl({"drain", host + "x"});
  EXPECT_EQ(typo.exit, 0) << typo.err;
  EXPECT_THAT(typo.err, HasSubstr(absl::StrCat("warning: ", host, "x is drained, but has no nodes")));
  EXPECT_EQ(Lines(typo.err), 1) << typo.err;
}

TEST_F(CtlTest, WaitAndWatch_ExitWithTheJobsCode) {
  StartServer();
  for (const int code : {0, 7}) {
    const TempDir folder;
    const std::string end = folder.File("end");
    Launcher node(NodeFlags(port_, "1", 1, {"--max-restarts=0"},
                            absl::StrCat("echo ran; until [ -e ", end, " ]; do sleep 0.05; done; exit ", code)));
    ASSERT_TRUE(node.WaitForOut("ran")) << node.Err();
    Process wait(CtlCommand({"wait", "job"})), watch(CtlCommand({"show", "--watch", "job"}));
    ASSERT_TRUE(watch.WaitForOut("running")) << watch.Err();
    WriteFile(end, "");
    EXPECT_EQ(node.Wait(), code) << node.Err();
    EXPECT_EQ(watch.Wait(), code) << watch.Err();
    EXPECT_EQ(wait.Wait(), code) << wait.Err();
    EXPECT_THAT(wait.Out(), HasSubstr(code == 0 ? "finished" : "failed"));
    EXPECT_THAT(wait.Out(), Not(HasSubstr("running")));
    EXPECT_EQ(Ctl({"wait", "job"}).exit, code);
    Do({"show", "job"});
  }
}

TEST_F(CtlTest, WrongCalls_ExitCodes) {
  StartServer();
  EXPECT_EQ(Ctl({"frob"}).exit, 2);
  EXPECT_EQ(Ctl({"stop"}).exit, 2);
  EXPECT_EQ(Ctl({"--tls-ca=/nonexistent", "jobs"}).exit, 2);
  for (const char* command : {"show", "stop", "wait"}) {
    const Answer missing = Ctl({command, "nix"});
    EXPECT_EQ(missing.exit, 3) << missing.err;
    EXPECT_EQ(Lines(missing.err), 1) << missing.err;
  }
  EXPECT_EQ(Ctl({"undrain", "nix"}).exit, 3);
  Do({"jobs"});
  server_->Signal(SIGKILL);
  server_->Wait();
  const Answer nobody = Ctl({"jobs"});
  EXPECT_EQ(nobody.exit, 1);
  EXPECT_EQ(nobody.err, absl::StrCat("ddprunctl: no answer from the rendezvous server (--server): 127.0.0.1:", port_,
                                     ": connection refused\n"));
}

TEST_F(CtlTest, ServerSaysLater_ItsReasonIsShown) {
  const TempDir folder;
  const std::string state = absl::StrCat("--state-dir=", folder.path());
  StartServer({state});
  const auto node = Node("1");
  ASSERT_TRUE(node->WaitForOut("round=1")) << node->Err();
  server_->Signal(SIGKILL);
  server_->Wait();
  node->Signal(SIGKILL);
  node->Wait();
  StartServer({state});
  ExpectRefused(Ctl({"resize", "job", "2"}), "ddprunctl: job job waits for its nodes after a server restart");
}

TEST_F(CtlTest, ServerWithToken_TakesCommandsOnlyWithIt) {
  constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
  constexpr char kWrong[] = "fedcba9876543210fedcba9876543210";
  const std::string folder = NewFolder("token"), file = folder + "/token";
  WriteFile(file, kToken);
  StartServer({absl::StrCat("--token-file=", file)});
  for (const char* command : {"drain", "show"}) {
    ExpectRefused(Ctl({command, "a"}), "no token given; this server requires one");
    ExpectRefused(Ctl({command, "a"}, {{"DDPRUN_TOKEN", kWrong}}), "invalid token");
  }
  EXPECT_EQ(Ctl({"events"}).exit, 1);
  const Answer missing = Ctl({"drain", "a", "--token-file=/nonexistent"});
  EXPECT_EQ(missing.exit, 2) << missing.err;
  EXPECT_EQ(Lines(missing.err), 1) << missing.err;
  const std::string flag = absl::StrCat("--token-file=", file);
  Do({"drain", "a", flag});
  EXPECT_EQ(Json({"hosts", flag})["hosts"][0]["drained"], true);
  Do({"undrain", "a"}, {{"DDPRUN_TOKEN", kToken}});
  // Holders of the token are identified by their address only; the token is not shown.
  const Answer events = Ctl({"events", flag, "--output=json"});
  EXPECT_EQ(Count(events.out, "\"actor\":\"127.0.0.1\""), 2) << events.out;
  EXPECT_THAT(events.out + server_->Out() + server_->Err(), Not(HasSubstr(kToken)));
}

TEST_F(CtlTest, ServerWithClientCertificates_KnowsWhoCommands) {
  TestCa ca(NewFolder("ca"));
  ca.Issue("server", "IP:127.0.0.1");
  for (const char* name : {"alice", "bob", "node"}) ca.Issue(name, absl::StrCat("DNS:", name, ".example"));
  const auto shown = [&](const std::string& name) {
    return std::vector<std::string>{"--tls-cert=" + ca.cert(name), "--tls-key=" + ca.key(name), "--tls-ca=" + ca.ca()};
  };
  const auto with = [](std::vector<std::string> command, const std::vector<std::string>& flags) {
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
  };
  StartServer(with({"--tls-allowed-names=alice.example,node.example"}, shown("server")));
  Launcher node(NodeFlags(port_, "1", 1, with({"--rdzv-conf=is_host=false"}, shown("node")),
                          std::string(kSayRank) + "exec sleep 1000"));
  ASSERT_TRUE(node.WaitForOut("round=1")) << node.Err();

  for (const char* command : {"stop", "show"}) {
    ExpectRefused(Ctl(with({command, "job"}, shown("bob"))), "no name in the client certificate is allowed");
    ExpectRefused(Ctl({command, "job"}), "a server with TLS needs --tls-ca");
  }
  Do(with({"stop", "job"}, shown("alice")));
  EXPECT_EQ(node.Wait(), 143) << node.Err();
  EXPECT_THAT(node.Err(), HasSubstr("stopped by alice.example"));
  const Answer events = Ctl(with({"events", "job", "--output=json"}, shown("alice")));
  EXPECT_EQ(Count(events.out, "\"actor\":\"alice.example\""), 1) << events.out;
}

}  // namespace
}  // namespace ddprun::testing

// `ddprun --hosts` over a real ssh to hosts with a real sshd each.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/e2e/launch.h"
#include "tests/hosts/hosts.h"

namespace ddprun::testing {
namespace {

constexpr char kPath[] = "/usr/sbin:/usr/bin:/sbin:/bin";
constexpr char kSshd[] = "/usr/sbin/sshd";
constexpr int kHosts = 3;

class SshTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_HOSTS();
    if (access(kSshd, X_OK) != 0) GTEST_SKIP() << "sshd is not installed";
    // In a user namespace sshd can't change to the user that logs in.
    if (!absl::StrContains(ReadFile("/proc/self/uid_map"), "4294967295")) GTEST_SKIP() << "sshd needs root";
    hosts_ = std::make_unique<Hosts>(kHosts, Hosts::Addresses::kIpv4);
    mkdir("/run/sshd", 0755);  // /run is the test's own
    std::filesystem::create_directory(dir_.File("bin"));
    std::filesystem::create_directory(dir_.File("work"));
    Shell(absl::StrCat("ssh-keygen -q -t ed25519 -N '' -f ", dir_.File("key")));
    Shell(absl::StrCat("ssh-keygen -q -t ed25519 -N '' -f ", dir_.File("hostkey")));
    std::ofstream(dir_.File("ssh_config"))
        << "Host *\n  User root\n  IdentitiesOnly yes\n  IdentityFile " << dir_.File("key") << "\n  UserKnownHostsFile "
        << dir_.File("known_hosts") << "\n  GlobalKnownHostsFile /dev/null\n";
    // ssh finds its configuration in the home of the user's entry in passwd only.
    std::ofstream(dir_.File("bin/ssh")) << "#!/bin/sh\nexec /usr/bin/ssh -F " << dir_.File("ssh_config") << " \"$@\"\n";
    chmod(dir_.File("bin/ssh").c_str(), 0755);
    std::ofstream known(dir_.File("known_hosts"));
    for (int i = 1; i <= kHosts; ++i) known << Hosts::Name(i) << " " << ReadFile(dir_.File("hostkey.pub"));
  }

  // Starts the sshd of a host, with an empty cache folder. `before` is a shell command in the host's mount namespace,
  // `wrapper` a program that runs sshd, `variables` are set in its sessions.
  void Serve(int host, const std::string& before = ":", const std::string& wrapper = "",
             const std::string& variables = "") {
    const std::string config = dir_.File(absl::StrCat("sshd_config", host));
    std::filesystem::create_directory(Cache(host));
    std::ofstream(config)
        << "Port 22\nHostKey " << dir_.File("hostkey") << "\nAuthorizedKeysFile " << dir_.File("key.pub")
        << "\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
        << "KbdInteractiveAuthentication no\n"
        << "SetEnv XDG_CACHE_HOME=" << Cache(host) << " " << variables << "\n";
    sshds_[host] = std::make_unique<Process>(
        hosts_->On(host, {"sh", "-c", absl::StrCat(before, " && exec ", wrapper, " ", kSshd, " -D -e -f ", config)}),
        std::map<std::string, std::string>{{"PATH", kPath}});
    ASSERT_TRUE(sshds_[host]->WaitForErr("Server listening")) << sshds_[host]->Err();
  }

  // ddprun on the first host.
  std::unique_ptr<Process> Start(std::vector<std::string> arguments,
                                 std::map<std::string, std::string> environment = {}) {
    arguments.insert(arguments.begin(), "launcher/ddprun");
    environment.insert({"PATH", absl::StrCat(dir_.File("bin"), ":", kPath)});
    environment.insert({"XDG_CACHE_HOME", dir_.File("cache1")});
    return std::make_unique<Process>(hosts_->On(1, std::move(arguments)), std::move(environment));
  }

  // Runs a job that can't start and returns what the user sees.
  std::string Fault(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {}) {
    std::unique_ptr<Process> ddprun = Start(std::move(arguments), std::move(environment));
    EXPECT_EQ(ddprun->Wait(), 1) << ddprun->Out() << ddprun->Err();
    EXPECT_EQ(ddprun->Out(), "");
    EXPECT_THAT(ddprun->Err(), HasSubstr("no worker was started: "));
    return ddprun->Err();
  }

  // A job of one worker on each of two hosts, which ends once the gate is there.
  std::vector<std::string> TickJob(std::vector<std::string> flags = {}) {
    std::vector<std::string> arguments = {"--hosts=node1,node2", "--shutdown-timeout=5"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    for (const std::string& word :
         {std::string("--no-python"), std::string("tests/testbin/tick"), dir_.File("ticks"), dir_.File("gate")}) {
      arguments.push_back(word);
    }
    return arguments;
  }
  // Waits for two workers that run at the same time.
  bool BothTick() {
    return Eventually([&] { return ReadFile(dir_.File("ticks")).size() > 100 && Ticking() == 2; });
  }
  static int Ticking() {
    Process pgrep({"/bin/sh", "-c", "pgrep -c -x tick"}, {{"PATH", kPath}});
    pgrep.Wait();
    return std::stoi(pgrep.Out());
  }
  static std::string Pids() {
    Process pgrep({"/bin/sh", "-c", "pgrep -x tick"}, {{"PATH", kPath}});
    pgrep.Wait();
    return pgrep.Out();
  }
  static int Launchers() {
    Process pgrep({"/bin/sh", "-c", "pgrep -c -x \"ddprun|exe\""}, {{"PATH", kPath}});
    pgrep.Wait();
    return std::stoi(pgrep.Out());
  }
  // Nothing of a job is left, on any host.
  static ::testing::AssertionResult AllIsGone() {
    if (Eventually([] { return Ticking() == 0 && Launchers() == 0; })) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << Ticking() << " workers and " << Launchers() << " ddpruns are left";
  }

  static void Shell(const std::string& command) {
    Process shell({"/bin/sh", "-ec", command}, {{"PATH", kPath}});
    EXPECT_EQ(shell.Wait(), 0) << command << "\n" << shell.Err();
  }
  // A process may end by the death of another one before it is killed.
  static void KillAllOn(int host) {
    Shell(absl::StrCat("while pids=$(ip netns pids ", Hosts::Name(host),
                       ") && [ -n \"$pids\" ]; do kill -9 $pids 2>/dev/null || true; sleep 0.01; done"));
  }
  // Folders with the program.
  std::vector<std::string> Copies(int host) const {
    std::vector<std::string> copies;
    for (const auto& entry : std::filesystem::directory_iterator(Cache(host) + "/ddprun")) {
      if (entry.path().filename() != "jobs") copies.push_back(entry.path());
    }
    return copies;
  }
  std::string Cache(int host) const { return dir_.File(absl::StrCat("cache", host)); }
  std::string Gate() const { return dir_.File("gate"); }

  TempDir dir_;
  std::unique_ptr<Hosts> hosts_;
  std::map<int, std::unique_ptr<Process>> sshds_;
};

const std::vector<std::string> kSay = {"--no-python", "sh", "-c", kSayRank};

std::vector<std::string> With(std::vector<std::string> flags, const std::vector<std::string>& script = kSay) {
  flags.insert(flags.end(), script.begin(), script.end());
  return flags;
}

TEST_F(SshTest, ThreeHosts_AreOneJob_AndTheProgramIsCopiedOnce) {
  Serve(2);
  Serve(3);
  Shell(absl::StrCat("mkdir -p ", Cache(2), "/ddprun/0.0.1-0123456789abcdef; cd ", Cache(2),
                     "/ddprun/0.0.1-0123456789abcdef; touch ddprun; touch -d '40 days ago' ."));
  for (int run = 0; run < 2; ++run) {
    const std::unique_ptr<Process> ddprun = Start(With({"--hosts=node1:2,node2:3,node3:1"}));
    EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
    EXPECT_THAT(ddprun->Err(), Not(HasSubstr("ERROR")));
    for (const char* line :
         {"[node1] [0]: rank=0/6 local=0/2 group=0/3", "[node1] [1]: rank=1/6 local=1/2 group=0/3",
          "[node2] [2]: rank=2/6 local=0/3 group=1/3", "[node2] [3]: rank=3/6 local=1/3 group=1/3",
          "[node2] [4]: rank=4/6 local=2/3 group=1/3", "[node3] [5]: rank=5/6 local=0/1 group=2/3"}) {
      EXPECT_EQ(Count(ddprun->Out(), line), 1) << line << "\n" << ddprun->Out();
    }
    EXPECT_EQ(Count(ddprun->Out(), "\n"), 6);
  }
  for (const int host : {2, 3}) {
    EXPECT_TRUE(Eventually([&] { return Copies(host).size() == 1; })) << "old ones are removed";
    EXPECT_TRUE(std::filesystem::is_empty(Cache(host) + "/ddprun/jobs"));
  }
  EXPECT_TRUE(AllIsGone());
}

TEST_F(SshTest, Hostfile_FolderAndVariables_AreThoseOfTheUser) {
  Serve(2);
  std::ofstream(dir_.File("hosts")) << "# two\nnode1 slots=1\nnode2 slots=1\n";
  const std::unique_ptr<Process> ddprun =
      Start({"--hosts", absl::StrCat("@", dir_.File("hosts")), "--env=COLOR,SIZE=8", "--env=KIND*", "--no-python", "sh",
             "-c", "echo \"$COLOR $SIZE $KIND_A $NCCL_DEBUG ${OTHER:-none} $(pwd)\""},
            {{"COLOR", "blue"}, {"KIND_A", "k"}, {"NCCL_DEBUG", "WARN"}, {"OTHER", "o"}});
  EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
  const std::string folder = std::filesystem::current_path().string();
  // The first host runs in this process's environment.
  EXPECT_THAT(ddprun->Out(), HasSubstr(absl::StrCat("[node1] [0]: blue 8 k WARN o ", folder, "\n")));
  EXPECT_THAT(ddprun->Out(), HasSubstr(absl::StrCat("[node2] [1]: blue 8 k WARN none ", folder, "\n")));
}

TEST_F(SshTest, CtrlC_EndsAllHosts) {
  Serve(2);
  const std::unique_ptr<Process> ddprun = Start(TickJob());
  ASSERT_TRUE(BothTick()) << ddprun->Err();
  ddprun->Signal(SIGINT);
  EXPECT_EQ(ddprun->Wait(), 130) << ddprun->Err();
  EXPECT_TRUE(AllIsGone());
}

// A launcher that is signaled first ends the job of the others, whose own signal must not count as a second one.
TEST_F(SshTest, CtrlC_LetsTheWorkersOfAllHostsSave) {
  Serve(2);
  Serve(3);
  for (int run = 0; run < 3; ++run) {
    const std::unique_ptr<Process> ddprun =
        Start({"--hosts=node1,node2,node3", "--no-python", "sh", "-c",
               absl::StrCat("trap 'sleep 0.2; echo saved $RANK; exit 0' INT TERM; echo up; ",
                            "while :; do sleep 0.05; done")});
    ASSERT_TRUE(Eventually([&] { return Count(ddprun->Out(), "up\n") == 3; })) << ddprun->Err();
    ddprun->Signal(SIGINT);
    EXPECT_EQ(ddprun->Wait(), 130) << ddprun->Err();
    EXPECT_EQ(Count(ddprun->Out(), "saved"), 3) << ddprun->Out() << ddprun->Err();
  }
}

TEST_F(SshTest, KillOfTheFirstProcess_EndsAllHosts) {
  Serve(2);
  // Workers that print all the time, too.
  for (const char* chatter : {"", "while :; do echo chatter; done &"}) {
    const std::unique_ptr<Process> ddprun =
        Start({"--hosts=node1,node2", "--no-python", "sh", "-c",
               absl::StrCat(chatter, " exec tests/testbin/tick ", dir_.File("ticks"), " ", Gate())});
    ASSERT_TRUE(BothTick()) << ddprun->Err();
    const absl::Time killed = absl::Now();
    ddprun->Signal(SIGKILL);
    EXPECT_EQ(ddprun->Wait(), 137);
    EXPECT_TRUE(AllIsGone());
    // Not when the lease of a lost connection ends.
    EXPECT_LT(absl::Now() - killed, absl::Seconds(55));
    EXPECT_TRUE(std::filesystem::is_empty(Cache(2) + "/ddprun/jobs"));
    std::filesystem::remove(dir_.File("ticks"));
  }
}

TEST_F(SshTest, FailureOfAWorker_IsTheJobs) {
  Serve(2);
  const std::unique_ptr<Process> ddprun =
      Start({"--hosts=node1,node2", "--no-python", "sh", "-c", "test $RANK = 0 || exit 7; sleep 1000"});
  EXPECT_EQ(ddprun->Wait(), 7);
  EXPECT_EQ(Count(ddprun->Err(), "FAILED"), 1) << ddprun->Err();
  EXPECT_THAT(ddprun->Err(), HasSubstr("\n  host      : node2\n  rank      : 1 (local_rank: 0)\n  exitcode  : 7"));
  EXPECT_TRUE(AllIsGone());
}

TEST_F(SshTest, Detach_RunningJob_CanBeFollowedAndStopped) {
  Serve(2);
  std::vector<std::string> arguments = {
      "--hosts=node1,node2", "--shutdown-timeout=5", "--rdzv-id=ni/ght", "--detach", "--no-python", "sh", "-c"};
  arguments.push_back(absl::StrCat("echo up; exec tests/testbin/tick ", dir_.File("ticks"), " ", Gate()));
  const std::unique_ptr<Process> ddprun = Start(arguments);
  EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
  EXPECT_THAT(ddprun->Out(), HasSubstr("Job ni/ght runs on 2 hosts"));
  ASSERT_TRUE(BothTick());
  const auto command = [&](const std::string& verb) {
    const size_t begin = ddprun->Out().find("ddprunctl --server", ddprun->Out().find(verb));
    return ddprun->Out().substr(begin, ddprun->Out().find('\n', begin) - begin);
  };
  EXPECT_THAT(Fault(TickJob({"--rdzv-id=ni/ght"})),
              AllOf(HasSubstr("node1: another job with this id runs here: "), HasSubstr("node2: another job")));
  // A follower that is killed changes nothing.
  for (const bool killed : {true, false}) {
    const std::unique_ptr<Process> follower = Start({"--hosts=node1,node2", "--rdzv-id=ni/ght"});
    ASSERT_TRUE(follower->WaitForOut("[node2] [1]: up")) << follower->Err();
    ASSERT_TRUE(follower->WaitForOut("[node1] [0]: up")) << follower->Err();
    if (killed) {
      follower->Signal(SIGKILL);
      follower->Wait();
      continue;
    }
    EXPECT_EQ(Ticking(), 2);
    // From another host of the user, with the token.
    EXPECT_THAT(hosts_->Shell(3, absl::StrCat("ddprunctl/", command("To see it"))), HasSubstr("ni/ght"));
    hosts_->Shell(3, absl::StrCat("ddprunctl/", command("To end it")));
    EXPECT_NE(follower->Wait(), 0);
  }
  EXPECT_TRUE(AllIsGone());
  // Its end and its output are still there.
  const std::unique_ptr<Process> late = Start({"--hosts=node2", "--rdzv-id=ni/ght"});
  EXPECT_NE(late->Wait(), 0);
  EXPECT_THAT(late->Out(), HasSubstr("[node2] [1]: up"));
  EXPECT_THAT(Start({"--hosts=node2", "--rdzv-id=other"})->Wait(), 1);
}

TEST_F(SshTest, CutConnection_ChangesNothing_AndNoOutputIsLost) {
  Serve(2);
  const std::unique_ptr<Process> ddprun =
      Start({"--hosts=node1,node2", "--no-python", "sh", "-c",
             absl::StrCat("i=0; while [ ! -e ", Gate(), " ]; do echo line $i; i=$((i+1)); sleep 0.01; done; echo $i")});
  for (int cut = 1; cut <= 2; ++cut) {
    ASSERT_TRUE(Eventually([&] { return Count(ddprun->Out(), "[node2] ") > 100 * cut; })) << ddprun->Err();
    Shell("pkill -9 -f '^sshd: root@notty'");
    ASSERT_TRUE(Eventually([&] {
      return Count(ddprun->Err(), "node2: connected again; its launcher has continued") == cut;
    })) << ddprun->Err();
  }
  EXPECT_THAT(ddprun->Err(), HasSubstr("node2: its ssh connection was lost: "));
  std::ofstream{Gate()};
  EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
  const std::string out = ddprun->Out();
  int lines = 0;
  while (absl::StrContains(out, absl::StrCat("[node2] [1]: line ", lines, "\n"))) ++lines;
  EXPECT_THAT(out, HasSubstr(absl::StrCat("[node2] [1]: ", lines, "\n")));
  EXPECT_EQ(Count(out, "[node2] [1]: "), lines + 1) << "no line twice";
  EXPECT_TRUE(AllIsGone());
}

TEST_F(SshTest, FrontThatReturnsWhileItsLauncherStops_StartsAnother) {
  Serve(2);
  std::ofstream(dir_.File("worker.sh"))
      << "cd " << dir_.path()
      << "\ntrap 'echo >stops.$RANK; while [ ! -e stopped ]; do sleep 0.05; done; exit 0' TERM\n"
      << "echo up\nwhile [ ! -e gate ]; do sleep 0.05; done\n";
  const std::unique_ptr<Process> ddprun =
      Start({"--hosts=node1,node2", "--rdzv-id=job", "--nnodes=1:2", "--rdzv-conf=last_call_timeout=1",
             "--shutdown-timeout=60", "--no-python", "sh", dir_.File("worker.sh")});
  ASSERT_TRUE(Eventually([&] { return Count(ddprun->Out(), "up\n") == 2; })) << ddprun->Err();
  // The lease ends now, as if the connection had been lost for long.
  std::ofstream(Cache(2) + "/ddprun/jobs/job/node2/control") << '\xff';
  ASSERT_TRUE(Eventually([&] { return access(dir_.File("stops.1").c_str(), F_OK) == 0; })) << ddprun->Err();
  Shell("pkill -9 -f '^sshd: root@notty'");
  EXPECT_TRUE(ddprun->WaitForErr("node2: the launcher of this job stops here")) << ddprun->Err();
  std::ofstream{dir_.File("stopped")};
  EXPECT_TRUE(ddprun->WaitForErr("node2: connected again; starting a launcher there")) << ddprun->Err();
  ASSERT_TRUE(Eventually([&] { return Count(ddprun->Out(), "[node2] ") == 2; })) << ddprun->Err();
  std::ofstream{Gate()};
  EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
  EXPECT_TRUE(AllIsGone());
}

TEST_F(SshTest, Detached_ConnectionLostDuringTheStart_IsMadeAgain) {
  Serve(2);
  // The start on the second host waits for this lock.
  const std::string folder = Cache(2) + "/ddprun/jobs/job";
  std::filesystem::create_directories(folder);
  const int lock = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  const std::unique_ptr<Process> ddprun = Start(TickJob({"--detach", "--rdzv-id=job"}));
  ASSERT_TRUE(Eventually([&] {
    return absl::StrContains(ReadFile("/proc/locks"), "-> FLOCK") &&
           access((Cache(1) + "/ddprun/jobs/job/node1/control").c_str(), F_OK) == 0;
  })) << ddprun->Err();
  Shell("pkill -9 -f '^sshd: root@notty'");
  EXPECT_TRUE(ddprun->WaitForErr("node2: its ssh connection was lost")) << ddprun->Err();
  close(lock);
  EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
  EXPECT_THAT(ddprun->Out(), HasSubstr("Job job runs on 2 hosts"));
  ASSERT_TRUE(BothTick()) << ddprun->Err();
  std::ofstream{Gate()};
  EXPECT_TRUE(AllIsGone());
}

TEST_F(SshTest, UnreadOutput_BlocksNeitherTheJobNorSignalsNorStderr) {
  Serve(2);
  std::ofstream(dir_.File("worker.sh")) << "cd " << dir_.path() << "\ntrap 'echo >saved.$RANK; exit 0' TERM\n"
                                        << "while :; do head -c 100000 /dev/zero | tr '\\0' x; echo; "
                                        << "i=$((i+1)); echo $i >at.$RANK; [ $i != 300 ] || echo error >&2; done\n";
  const std::string fifo = dir_.File("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const int unread = open(fifo.c_str(), O_RDWR);
  Process ddprun(
      hosts_->On(1, {"sh", "-c",
                     absl::StrCat("PATH=", dir_.File("bin"), ":$PATH exec launcher/ddprun --hosts=node1,node2 ",
                                  "--no-python sh ", dir_.File("worker.sh"), " >", fifo)}),
      {{"PATH", kPath}, {"XDG_CACHE_HOME", Cache(1)}});
  for (const char* rank : {"at.0", "at.1"}) {
    ASSERT_TRUE(Eventually([&] { return std::atoi(ReadFile(dir_.File(rank)).c_str()) > 300; })) << ddprun.Err();
  }
  EXPECT_TRUE(ddprun.WaitForErr("[node1] [0]: error\n")) << ddprun.Err();
  EXPECT_TRUE(ddprun.WaitForErr("[node2] [1]: error\n")) << ddprun.Err();
  ddprun.Signal(SIGTERM);
  for (const char* rank : {"saved.0", "saved.1"}) {
    EXPECT_TRUE(Eventually([&] { return access(dir_.File(rank).c_str(), F_OK) == 0; })) << ddprun.Err();
  }
  ddprun.Signal(SIGTERM);
  ddprun.Signal(SIGINT);
  EXPECT_THAT(ddprun.Wait(), ::testing::AnyOf(143, 130)) << ddprun.Err();
  close(unread);
  EXPECT_TRUE(AllIsGone());
}

TEST_F(SshTest, Umask_IsThatOfTheLoginSession) {
  Serve(2, "umask 027");
  const std::unique_ptr<Process> ddprun = Start({"--hosts=node2", "--no-python", "sh", "-c", "umask"});
  EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
  EXPECT_EQ(ddprun->Out(), "[node2] [0]: 0027\n");
}

TEST_F(SshTest, BrokenCopy_IsReplaced) {
  Serve(2);
  EXPECT_EQ(Start({"--hosts=node2", "--no-python", "true"})->Wait(), 0);
  std::ofstream{Copies(2).at(0) + "/ddprun"};
  const std::unique_ptr<Process> ddprun = Start({"--hosts=node2", "--no-python", "true"});
  EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
}

TEST_F(SshTest, LostHost_ElasticJob_OtherContinues) {
  Serve(2);
  const std::unique_ptr<Process> ddprun =
      Start(TickJob({"--nnodes=1:2", "--max-restarts=3", "--rdzv-conf=last_call_timeout=1"}));
  ASSERT_TRUE(BothTick()) << ddprun->Err();
  KillAllOn(2);
  EXPECT_TRUE(ddprun->WaitForErr("node2: its ssh connection was lost")) << ddprun->Err();
  // In a world of one.
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(ReadFile(dir_.File("ticks")), " 1 "); })) << ddprun->Err();
  std::ofstream{Gate()};
  EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
}

TEST_F(SshTest, LostHost_Returns_GetsLauncher) {
  for (const char* nodes : {"--nnodes=2", "--nnodes=1:2"}) {
    Serve(2);
    const std::unique_ptr<Process> ddprun =
        Start(TickJob({nodes, "--max-restarts=1", "--rdzv-conf=last_call_timeout=1"}));
    ASSERT_TRUE(BothTick()) << ddprun->Err();
    KillAllOn(2);
    EXPECT_TRUE(ddprun->WaitForErr("node2: its ssh connection was lost")) << ddprun->Err();
    Serve(2);
    EXPECT_TRUE(ddprun->WaitForErr("node2: connected again; starting a launcher there")) << ddprun->Err();
    ASSERT_TRUE(Eventually([] { return Ticking() == 2; })) << ddprun->Err();
    std::ofstream{Gate()};
    EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
    EXPECT_TRUE(AllIsGone());
    for (const std::string& file : {Gate(), dir_.File("ticks")}) std::filesystem::remove(file);
  }
}

// ---- faults: one line each -----------------------------------------------------------------------------------------

TEST_F(SshTest, Ssh_UnknownHost_IsNamed) {
  Serve(2);
  EXPECT_THAT(Fault(With({"--hosts=node1,node2,nowhere"})), HasSubstr("nowhere: no such host: "));
}

TEST_F(SshTest, Ssh_NoKey_IsNamed) {
  Serve(2);
  std::ofstream{dir_.File("key.pub")};  // no key is accepted
  EXPECT_THAT(Fault(With({"--hosts=node1,node2"})), HasSubstr("node2: ssh was not let in (publickey)"));
}

TEST_F(SshTest, Ssh_HostKeyChanged_IsNamed) {
  Serve(2);
  std::ofstream(dir_.File("known_hosts")) << "node2 " << ReadFile(dir_.File("key.pub"));
  EXPECT_THAT(Fault(With({"--hosts=node1,node2"})), HasSubstr("node2: its host key has changed"));
}

TEST_F(SshTest, Ssh_HostKeyUnknown_IsNamed) {
  Serve(2);
  std::ofstream{dir_.File("known_hosts")};
  EXPECT_THAT(Fault(With({"--hosts=node1,node2"})), HasSubstr("node2: its host key is not known here"));
}

TEST_F(SshTest, Ssh_NoSshd_IsNamed) {
  EXPECT_THAT(Fault(With({"--hosts=node1,node2"})), HasSubstr("node2: nothing answers to ssh there"));
}

class PythonSshTest : public SshTest {
 protected:
  void SetUp() override {
    SshTest::SetUp();
    if (IsSkipped()) return;
    if (access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "there is no /usr/bin/python3";
    for (const char* folder : {"env", "packages"}) std::filesystem::create_directory(dir_.File(folder));
    std::filesystem::create_symlink("/usr/bin/python3", dir_.File("env/python"));
    std::ofstream(dir_.File("work/train.py")) << "print('trained')\n";
    Package("2.11.0");
  }
  void Package(const std::string& version) {
    std::filesystem::remove_all(dir_.File("packages"));
    const std::string info = dir_.File(absl::StrCat("packages/torch-", version, ".dist-info"));
    std::filesystem::create_directories(info);
    std::ofstream(info + "/METADATA") << "Metadata-Version: 2.1\nName: torch\nVersion: " << version << "\n";
  }
  std::map<std::string, std::string> Environment() const {
    return {{"PYTHON_EXEC", dir_.File("env/python")}, {"PYTHONPATH", dir_.File("packages")}};
  }
  // A folder that is empty on a host.
  std::string Hide(const std::string& folder) const { return absl::StrCat("mount -t tmpfs tmpfs ", dir_.File(folder)); }
  std::vector<std::string> Train() const { return {"--hosts=node1,node2", dir_.File("work/train.py")}; }
};

TEST_F(PythonSshTest, EqualHosts_Train) {
  Serve(2);
  const std::unique_ptr<Process> ddprun = Start(Train(), Environment());
  EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
  EXPECT_EQ(Count(ddprun->Out(), "]: trained\n"), 2) << ddprun->Out();
}

TEST_F(PythonSshTest, Python_Missing_IsNamed) {
  Serve(2, Hide("env"));
  EXPECT_THAT(Fault(Train(), Environment()),
              HasSubstr(absl::StrCat("node2: there is no Python at ", dir_.File("env/python"))));
}

TEST_F(PythonSshTest, Torch_OtherVersion_IsNamed) {
  const std::string there = absl::StrCat(dir_.path(), "/packages/torch-2.11.0.dist-info/METADATA");
  const std::string other = dir_.File("METADATA");
  std::ofstream(other) << absl::StrReplaceAll(ReadFile(there), {{"2.11.0", "2.10.0"}});
  Serve(2, absl::StrCat("mount --bind ", other, " ", there));
  EXPECT_THAT(Fault(Train(), Environment()),
              AllOf(HasSubstr("  torch  2.11.0  2.10.0\n"), HasSubstr("node2 has torch 2.10.0, node1 has 2.11.0: ")));
}

TEST_F(PythonSshTest, Script_Missing_IsNamed) {
  Serve(2, Hide("work"));
  EXPECT_THAT(Fault(Train(), Environment()),
              HasSubstr(absl::StrCat("node2: there is no script ", dir_.File("work/train.py"))));
}

TEST_F(PythonSshTest, Script_NotAFile_IsNamed) {
  Serve(2);
  EXPECT_THAT(Fault({"--hosts=node1,node2", "/dev/stdin"}, Environment()),
              HasSubstr("node2: the script /dev/stdin is no file"));
}

TEST_F(PythonSshTest, Script_Folder_IsRun) {
  std::filesystem::rename(dir_.File("work/train.py"), dir_.File("work/__main__.py"));
  Serve(2);
  const std::unique_ptr<Process> ddprun = Start({"--hosts=node1,node2", dir_.File("work")}, Environment());
  EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
  EXPECT_EQ(Count(ddprun->Out(), "]: trained\n"), 2) << ddprun->Out();
}

TEST_F(PythonSshTest, ScriptOfAnotherVersion_IsAWarning) {
  const std::string other = dir_.File("old.py");
  std::ofstream(other) << "print('trained long ago')\n";
  Serve(2, absl::StrCat("mount --bind ", other, " ", dir_.File("work/train.py")));
  const std::unique_ptr<Process> ddprun = Start(Train(), Environment());
  EXPECT_EQ(ddprun->Wait(), 0);
  EXPECT_THAT(ddprun->Err(), HasSubstr("the script on node2 is not that of node1"));
}

TEST_F(PythonSshTest, Start_HostDies_IsNamed) {
  // The interpreter of the second host hangs, and then the host is gone.
  const std::string hanging = dir_.File("hanging");
  std::ofstream(hanging) << "#!/bin/sh\n: >" << dir_.File("asked") << "\nexec sleep 1000\n";
  chmod(hanging.c_str(), 0755);
  std::filesystem::remove(dir_.File("env/python"));
  std::filesystem::copy("/usr/bin/python3", dir_.File("env/python"));
  Serve(2, absl::StrCat("mount --bind ", hanging, " ", dir_.File("env/python")));
  const std::unique_ptr<Process> ddprun = Start(Train(), Environment());
  ASSERT_TRUE(Eventually([&] { return access(dir_.File("asked").c_str(), F_OK) == 0; })) << ddprun->Err();
  KillAllOn(2);
  EXPECT_EQ(ddprun->Wait(), 1);
  EXPECT_THAT(ddprun->Err(), HasSubstr("node2: its ssh connection was lost: "));
}

TEST_F(SshTest, Folder_Missing_IsNamed) {
  const std::string folder = std::filesystem::current_path().string();
  Serve(2, absl::StrCat("mount -t tmpfs tmpfs ", std::filesystem::path(folder).parent_path().string()));
  EXPECT_THAT(Fault(With({"--hosts=node1,node2"})),
              HasSubstr(absl::StrCat("node2: can't enter the working folder ", folder, ": No such file")));
}

TEST_F(SshTest, Rendezvous_Firewall_IsNamed) {
  Serve(2);
  hosts_->AllowOnlyPorts(1, 22, 22);
  EXPECT_THAT(
      Fault(With({"--hosts=node1,node2"})),
      AllOf(HasSubstr("node2 from port to port "), HasSubstr(absl::StrCat(Hosts::Ipv4(1), " (eth0): no answer")),
            HasSubstr("no address of node1 can be reached from all other hosts: open the firewall")));
}

TEST_F(SshTest, SecondInterface_IsFound) {
  const int second = hosts_->AddNetwork(Hosts::Addresses::kIpv4);
  Serve(2);
  hosts_->Firewall(1,
                   "table inet first { chain in { type filter hook input priority 0; iifname \"eth0\" tcp flags & (syn "
                   "| ack) == syn drop; }; }");
  const std::unique_ptr<Process> ddprun =
      Start({"--hosts=node1,node2", "--no-python", "sh", "-c", "echo \"master=$MASTER_ADDR\""});
  EXPECT_EQ(ddprun->Wait(), 0) << ddprun->Err();
  EXPECT_EQ(Count(ddprun->Out(), absl::StrCat("master=", Hosts::Ipv4(1, second), "\n")), 2) << ddprun->Out();
}

TEST_F(SshTest, FullDisk_ForTheProgram) {
  Serve(2, absl::StrCat("mount -t tmpfs -o size=1M tmpfs ", Cache(2)));
  EXPECT_THAT(Fault(With({"--hosts=node1,node2"})),
              AllOf(HasSubstr("node2: the program could not be copied"), HasSubstr("No space left on device")));
}

TEST_F(SshTest, FullDisk_ForTheJob) {
  Serve(2, absl::StrCat("mkdir -p ", dir_.File("tmp"), " && mount -t tmpfs -o size=64k tmpfs ", dir_.File("tmp")), "",
        absl::StrCat("TMPDIR=", dir_.File("tmp")));
  EXPECT_THAT(Fault(With({"--hosts=node1,node2"})),
              HasSubstr(absl::StrCat("node2: no space is left in ", dir_.File("tmp"))));
}

TEST_F(SshTest, Copy_OtherArchitecture_IsNamed) {
  Serve(2, ":", "setarch i686");
  EXPECT_THAT(Fault(With({"--hosts=node1,node2"})), HasSubstr("node2: it has Linux i686, this host Linux "));
}

TEST_F(SshTest, Copy_OldCLibrary_IsNamed) {
  Serve(2);
  EXPECT_EQ(Start({"--hosts=node2", "--no-python", "true"})->Wait(), 0);
  // The copy there now wants a version that no C library has.
  const std::string copy = Copies(2).at(0) + "/ddprun";
  const std::string program = absl::StrReplaceAll(ReadFile(copy), {{"GLIBC_2.34", "GLIBC_2.99"}});
  std::ofstream(copy, std::ios::binary) << program;
  EXPECT_THAT(Fault(With({"--hosts=node1,node2"})),
              AllOf(HasSubstr("node2: its C library is too old for this program ("), HasSubstr("GLIBC_2.99")));
}

TEST_F(SshTest, Copy_NoExecFolder_IsNamed) {
  Serve(2, absl::StrCat("mount -t tmpfs -o noexec tmpfs ", Cache(2)));
  EXPECT_THAT(Fault(With({"--hosts=node1,node2"})), AllOf(HasSubstr("node2: "), HasSubstr("folder without noexec")));
}

TEST_F(SshTest, Copy_CacheFolderNotWritable_IsNamed) {
  Serve(2, absl::StrCat("mount -t tmpfs -o ro tmpfs ", Cache(2)));
  EXPECT_THAT(Fault(With({"--hosts=node1,node2"})),
              AllOf(HasSubstr("node2: the program could not be copied"), HasSubstr("Read-only file system")));
}

TEST_F(SshTest, WrongFlags_AreOneLine) {
  for (const auto& [flags, text] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--hosts=node1,node2", "--standalone"}, "--standalone with --hosts: leave it out"},
           {{"--hosts=node1,node2", "--node-rank=1"}, "--node-rank=1 with --hosts: leave it out"},
           {{"--hosts=node1,node2", "--nnodes=3"}, "--nnodes=3, but --hosts names 2"},
           {{"--hosts=@/tmp"}, "--hosts: '/tmp' is a folder"},
           {{"--hosts=@/nowhere"}, "--hosts: can't read '/nowhere': No such file or directory"},
           {{"--hosts=node1", "--rdzv-id=.."}, "--rdzv-id=..: '..' can't be the name of a folder"},
           {{"--hosts=node1", "--env=NO_SUCH_VARIABLE"}, "--env: 'NO_SUCH_VARIABLE' is not set here"},
           {{"--detach"}, "--detach is for --hosts"},
           {{"--hosts=node1,node1"}, "'node1' is given twice"}}) {
    const std::unique_ptr<Process> ddprun = Start(With(flags));
    EXPECT_EQ(ddprun->Wait(), 2);
    EXPECT_THAT(ddprun->Err(), HasSubstr(text));
    EXPECT_EQ(Count(ddprun->Err(), "\n"), 1) << ddprun->Err();
  }
}

}  // namespace
}  // namespace ddprun::testing

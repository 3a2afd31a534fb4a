// The program rendezvousd: flags, output, exit status, signals, and a state directory on a disk that is full for a
// while, simulated by the file size limit (RLIMIT_FSIZE).

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/client/grpc_client.h"
#include "tests/rendezvous/server/net_fixture.h"
#include "tests/testing/process.h"

namespace ddprun::rendezvous {
namespace {

constexpr char kListen[] = "--listen=127.0.0.1:0";

class Rendezvousd : public testing::Process {
 public:
  // `arguments` and `before`: text of a shell.
  explicit Rendezvousd(const std::string& arguments, const std::string& before = "")
      : Process({"/bin/sh", "-c", absl::StrCat(before, "exec rendezvous/daemon/rendezvousd ", arguments)}) {}

  // Port in the line "rendezvousd: listening on 127.0.0.1:PORT", once there are so many of these lines.
  int Port(int line = 1) {
    std::string out;
    EXPECT_TRUE(testing::Eventually([&] {
      out = Out();
      return std::count(out.begin(), out.end(), '\n') >= line;
    })) << Err();
    int port = 0;
    EXPECT_THAT(out, ::testing::StartsWith("rendezvousd: listening on 127.0.0.1:"));
    EXPECT_TRUE(absl::SimpleAtoi(out.substr(out.rfind(':') + 1), &port)) << out;
    return port;
  }
  void ExpectEnds(int signal = SIGTERM) {
    Signal(signal);
    EXPECT_EQ(Wait(), 0) << Err();
  }
};

int Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

// A job of one node begins its first round.
void RunJob(int port, const std::string& job) {
  TestLauncher launcher(TestServer::GrpcTo(port), job, "node1", PatientSettings(1));
  BeginRound({&launcher});
}

TEST(RendezvousdTest, Sigterm_StreamsEnd_ExitsWithZero) {
  for (const int number : {SIGTERM, SIGINT}) {
    Rendezvousd server(kListen);
    TestLauncher a(TestServer::GrpcTo(server.Port()), "job", "node1", PatientSettings(1));
    BeginRound({&a});
    server.Signal(number);
    EXPECT_THAT(a.Await<Disconnected>().reason, HasSubstr("shutting down"));
    EXPECT_EQ(server.Wait(), 0);
    EXPECT_THAT(server.Err(), HasSubstr("rendezvousd: job job: node1 (node1.example, 2 workers) joined"));
    EXPECT_THAT(server.Err(), HasSubstr("rendezvousd: job job: round 1 assigned to 1 node, 2 workers; store at "));
    EXPECT_EQ(Lines(server.Out()), 1);
  }
}

TEST(RendezvousdTest, LogIsNotReadOrItsReaderGoes_ServesOnAndEnds) {
  for (const bool goes : {true, false}) {
    const testing::TempDir folder;
    const std::string log = folder.File("log");
    ASSERT_EQ(mkfifo(log.c_str(), 0600), 0);
    const int reader = open(log.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    fcntl(reader, F_SETPIPE_SZ, 4096);  // the smallest size
    Rendezvousd server(absl::StrCat(kListen, " 2>", log));
    const int port = server.Port();
    if (goes) close(reader);
    for (int i = 0; i < 40; ++i) RunJob(port, absl::StrCat("job", i));
    server.ExpectEnds();
    if (!goes) close(reader);
  }
}

TEST(RendezvousdTest, OutOfFileDescriptors_TheLogAndTheEndOfTheJobSaySoLaterJobsRun) {
  Rendezvousd server(kListen, "ulimit -n 40; ");
  const int port = server.Port();
  JobSettings settings = PatientSettings(40);
  *settings.mutable_join_timeout() = FromDuration(absl::Seconds(5));
  std::vector<std::unique_ptr<TestLauncher>> launchers;
  for (int i = 0; i < 40; ++i) {
    launchers.push_back(
        std::make_unique<TestLauncher>(TestServer::GrpcTo(port), "job", absl::StrCat("node", i), settings));
    if (i < 5) launchers.back()->ConnectAndJoin();
  }
  constexpr char kWhy[] = "out of file descriptors (limit 40)";
  EXPECT_THAT(launchers.front()->Await<Finish>().verdict().reason(), HasSubstr(kWhy));
  launchers.clear();
  RunJob(port, "later");
  server.ExpectEnds();
  EXPECT_THAT(server.Err(), HasSubstr(kWhy));
}

TEST(RendezvousdTest, SeveralAddresses_AreAllListed) {
  Rendezvousd server(absl::StrCat(kListen, " ", kListen, " --log-level error"));
  const int last = server.Port(2);
  EXPECT_EQ(Lines(server.Out()), 2);
  EXPECT_EQ(server.Out().find(absl::StrCat(last)), server.Out().rfind(absl::StrCat(last))) << "two ports";
  server.ExpectEnds();
  EXPECT_EQ(server.Err(), "");
}

TEST(RendezvousdTest, BadFlags_OneLineAndExitTwo) {
  for (const char* arguments : {"--no-such-flag", "--listen nonsense", "extra", "--config /nonexistent",
                                "--check-config --token-file /nonexistent"}) {
    Rendezvousd server(arguments);
    EXPECT_EQ(server.Wait(), 2) << arguments;
    EXPECT_EQ(Lines(server.Err()), 1) << server.Err();
    EXPECT_THAT(server.Err(), HasSubstr(" ERROR "));
    EXPECT_THAT(server.Err(), HasSubstr(" rendezvousd: "));
  }
}

TEST(RendezvousdTest, FlagsThatOnlyPrint_ExitWithZero) {
  for (const auto& [flag, text] : {std::pair("--help", "--listen"), std::pair("--version", "rendezvousd "),
                                   std::pair("--check-config", "rendezvousd: configuration is valid\n")}) {
    Rendezvousd server(flag);
    EXPECT_EQ(server.Wait(), 0) << server.Err();
    EXPECT_THAT(server.Out(), HasSubstr(text));
  }
}

TEST(RendezvousdTest, PortTaken_OneLineNamesItAndExitOne) {
  Rendezvousd first(kListen);
  const std::string address = absl::StrCat("127.0.0.1:", first.Port());
  Rendezvousd second("--listen " + address);
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_EQ(Lines(second.Err()), 1) << second.Err();
  EXPECT_THAT(second.Err(), HasSubstr(absl::StrCat(address, ": address in use")));
}

class FullDiskTest : public ::testing::Test {
 protected:
  FullDiskTest() {
    EXPECT_TRUE(server_.WaitForOut("\n")) << server_.Err();
    const std::string line = server_.Out();
    EXPECT_TRUE(absl::SimpleAtoi(line.substr(line.rfind(':') + 1), &port_)) << line;
  }

  std::unique_ptr<TestLauncher> Join(const std::string& job, const std::string& host, int nodes) {
    auto launcher = std::make_unique<TestLauncher>(TestServer::GrpcTo(port_), job, host, PatientSettings(nodes));
    launcher->ConnectAndJoin();
    return launcher;
  }

  // Limits the size of files; 0: as far as they may grow.
  void LimitFiles(rlim_t size) {
    rlimit limit = {};
    ASSERT_EQ(prlimit(server_.pid(), RLIMIT_FSIZE, nullptr, &limit), 0);
    limit.rlim_cur = size == 0 ? limit.rlim_max : size;
    ASSERT_EQ(prlimit(server_.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  }
  // The database's log cannot grow afterwards.
  void FillDisk() { LimitFiles(std::filesystem::file_size(dir_.File("state/state.db-wal"))); }
  void EmptyDisk() { LimitFiles(0); }

  testing::TempDir dir_;
  testing::Process server_{
      {"rendezvous/daemon/rendezvousd", "--listen=127.0.0.1:0", "--state-dir=" + dir_.File("state")}};
  int port_ = 0;
};

// Returns the first Waiting reason that names the state directory.
std::string AwaitReason(TestLauncher* launcher) {
  std::string reason;
  while (!absl::StrContains(reason, "state directory") && !::testing::Test::HasFailure()) {
    reason = launcher->Await<Waiting>().reason();
  }
  return reason;
}

TEST_F(FullDiskTest, LaunchersAreToldAndTheJobsGoOn) {
  const auto running = Join("running", "node1", 1);
  running->AwaitRound();
  FillDisk();
  // No round is assigned before its record is persisted, and all waiting launchers receive the reason.
  const auto first = Join("job", "node1", 2), second = Join("job", "node2", 2);
  const std::string reason = AwaitReason(first.get());
  EXPECT_TRUE(absl::StartsWith(reason, "the rendezvous server can't write to the state directory ")) << reason;
  EXPECT_THAT(reason, HasSubstr(dir_.File("state")));
  EXPECT_EQ(AwaitReason(second.get()), reason);
  const auto third = Join("job", "node3", 2);
  EXPECT_EQ(AwaitReason(third.get()), reason) << "who comes later is told as well";
  running->client().Send(Heartbeat{});
  running->Await<HeartbeatAck>();
  EmptyDisk();
  EXPECT_EQ(first->AwaitRound().round(), 1);
  EXPECT_EQ(second->AwaitRound().round(), 1);
  running->Succeed();
  EXPECT_TRUE(running->Await<Finish>().verdict().succeeded());

  server_.Signal(SIGTERM);
  EXPECT_EQ(server_.Wait(), 0);
  const std::string log = server_.Err();
  for (const char* once : {"can't write to the state directory", "is writable again"}) {
    EXPECT_THAT(log, HasSubstr(once));
    EXPECT_EQ(log.find(once), log.rfind(once)) << log;
  }
}

}  // namespace

}  // namespace ddprun::rendezvous

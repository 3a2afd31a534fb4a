// The rendezvousd binary: flags, output, exit status, signals.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
    fcntl(reader, F_SETPIPE_SZ, 4096);  // as small as it can be
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

}  // namespace
}  // namespace ddprun::rendezvous

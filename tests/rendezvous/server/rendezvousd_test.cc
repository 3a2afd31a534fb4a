// The rendezvousd binary: flags, output, exit status, signals.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/client/grpc_client.h"
#include "tests/rendezvous/server/test_launcher.h"

extern char** environ;

namespace ddprun::rendezvous {
namespace {

std::string Binary() {
  return absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"), "/rendezvous/daemon/rendezvousd");
}

// A running rendezvousd; killed if the test forgets it.
class Process {
 public:
  // `before`: shell commands to run first.
  explicit Process(std::vector<std::string> arguments, const std::string& before = "") {
    int out[2];
    int err[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    arguments.insert(arguments.begin(), Binary());
    if (!before.empty()) {
      const std::vector<std::string> shell = {"/bin/sh", "-c", before + "exec \"$0\" \"$@\""};
      arguments.insert(arguments.begin(), shell.begin(), shell.end());
    }
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Process() {
    if (pid_ > 0) {
      Signal(SIGKILL);
      Wait();
    }
    close(out_);
    close(err_);
  }

  std::string ReadLine() {
    std::string line;
    char byte = 0;
    while (read(out_, &byte, 1) == 1 && byte != '\n') line.push_back(byte);
    return line;
  }
  std::string ReadAll() { return ReadToEnd(out_); }
  std::string ReadErrors() { return ReadToEnd(err_); }
  // The log's reader goes.
  void CloseErrors() {
    close(err_);
    err_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  // Makes the pipe of the log as small as it can be.
  void ShrinkErrors() { fcntl(err_, F_SETPIPE_SZ, 4096); }
  void Signal(int number) { kill(pid_, number); }
  // The exit status, or -signal.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  static std::string ReadToEnd(int fd) {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, n);
    return text;
  }

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
};

// "rendezvousd: listening on 127.0.0.1:PORT"
int PortOf(const std::string& line) {
  int port = 0;
  EXPECT_TRUE(absl::StartsWith(line, "rendezvousd: listening on 127.0.0.1:")) << line;
  EXPECT_TRUE(absl::SimpleAtoi(line.substr(line.rfind(':') + 1), &port)) << line;
  return port;
}

int Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(RendezvousdTest, Sigterm_StreamsEnd_ExitsWithZero) {
  for (const int number : {SIGTERM, SIGINT}) {
    Process server({"--listen", "127.0.0.1:0"});
    const int port = PortOf(server.ReadLine());
    TestLauncher a(
        [&](Client::Handler handler) {
          return NewGrpcClient({"127.0.0.1", port}, std::move(handler));
        },
        "job", "node1", PatientSettings(1));
    a.ConnectAndJoin();
    a.AwaitRound();
    server.Signal(number);
    EXPECT_NE(a.Await<Disconnected>().reason.find("shutting down"), std::string::npos);
    EXPECT_EQ(server.Wait(), 0);
    const std::string log = server.ReadErrors();
    EXPECT_NE(log.find("rendezvousd: job job: node1 (node1.example, 2 workers) joined"), std::string::npos) << log;
    EXPECT_NE(log.find("rendezvousd: job job: round 1 assigned to 1 node, 2 workers; store at "), std::string::npos)
        << log;
    EXPECT_EQ(server.ReadAll(), "");
  }
}

// A job of one node begins its first round.
void RunJob(int port, const std::string& job) {
  TestLauncher launcher(
      [&](Client::Handler handler) {
        return NewGrpcClient({"127.0.0.1", port}, std::move(handler));
      },
      job, "node1", PatientSettings(1));
  launcher.ConnectAndJoin();
  launcher.AwaitRound();
}

TEST(RendezvousdTest, ReaderOfTheLogGoes_ServesOn) {
  Process server({"--listen", "127.0.0.1:0"});
  const int port = PortOf(server.ReadLine());
  server.CloseErrors();
  for (const char* job : {"a", "b"}) RunJob(port, job);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
}

TEST(RendezvousdTest, LogIsNotRead_ServesOnAndEnds) {
  Process server({"--listen", "127.0.0.1:0"});
  server.ShrinkErrors();
  const int port = PortOf(server.ReadLine());
  for (int i = 0; i < 40; ++i) RunJob(port, absl::StrCat("job", i));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
}

TEST(RendezvousdTest, OutOfFileDescriptors_TheLogAndTheEndOfTheJobSaySoLaterJobsRun) {
  Process server({"--listen", "127.0.0.1:0"}, "ulimit -n 40; ");
  const int port = PortOf(server.ReadLine());
  JobSettings settings = PatientSettings(40);
  *settings.mutable_join_timeout() = FromDuration(absl::Seconds(5));
  std::vector<std::unique_ptr<TestLauncher>> launchers;
  for (int i = 0; i < 40; ++i) {
    launchers.push_back(std::make_unique<TestLauncher>(
        [&](Client::Handler handler) {
          return NewGrpcClient({"127.0.0.1", port}, std::move(handler));
        },
        "job", absl::StrCat("node", i), settings));
    if (i < 5) launchers.back()->ConnectAndJoin();
  }
  const std::string reason = launchers.front()->Await<Finish>().verdict().reason();
  EXPECT_TRUE(absl::StrContains(reason, "out of file descriptors (limit 40)")) << reason;
  launchers.clear();
  RunJob(port, "later");
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  const std::string log = server.ReadErrors();
  EXPECT_TRUE(absl::StrContains(log, "rendezvousd: out of file descriptors (limit 40)")) << log;
}

TEST(RendezvousdTest, SeveralAddresses_AreAllListed) {
  Process server({"--listen", "127.0.0.1:0", "--listen=127.0.0.1:0", "--log-level", "error"});
  const int first = PortOf(server.ReadLine());
  EXPECT_NE(PortOf(server.ReadLine()), first);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_EQ(server.ReadErrors(), "");
}

TEST(RendezvousdTest, BadFlags_OneLineAndExitTwo) {
  const std::vector<std::vector<std::string>> cases = {{"--no-such-flag"},
                                                       {"--listen"},
                                                       {"--listen", "nonsense"},
                                                       {"--listen", "127.0.0.1:99999"},
                                                       {"extra"},
                                                       {"--log-level", "loud"},
                                                       {"--listen", "::1:29400"},
                                                       {"--config", "/nonexistent"},
                                                       {"--check-config", "--token-file", "/nonexistent"}};
  for (const std::vector<std::string>& arguments : cases) {
    Process server(arguments);
    const std::string errors = server.ReadErrors();
    EXPECT_EQ(server.Wait(), 2) << errors;
    EXPECT_EQ(Lines(errors), 1) << errors;
    EXPECT_TRUE(absl::StrContains(errors, " ERROR ")) << errors;
    EXPECT_TRUE(absl::StrContains(errors, " rendezvousd: ")) << errors;
  }
}

TEST(RendezvousdTest, HelpAndVersion_ExitWithZero) {
  Process help({"--help"});
  EXPECT_NE(help.ReadAll().find("--listen"), std::string::npos);
  EXPECT_EQ(help.Wait(), 0);
  Process version({"--version"});
  EXPECT_TRUE(absl::StartsWith(version.ReadAll(), "rendezvousd "));
  EXPECT_EQ(version.Wait(), 0);
}

TEST(RendezvousdTest, CheckConfig_SaysThatItIsValidAndExitsWithZero) {
  Process check({"--check-config", "--listen", "127.0.0.1:0"});
  EXPECT_EQ(check.ReadAll(), "rendezvousd: configuration is valid\n");
  EXPECT_EQ(check.Wait(), 0);
}

TEST(RendezvousdTest, PortTaken_OneLineNamesItAndExitOne) {
  Process first({"--listen", "127.0.0.1:0"});
  const std::string address = absl::StrCat("127.0.0.1:", PortOf(first.ReadLine()));
  Process second({"--listen", address});
  const std::string errors = second.ReadErrors();
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_EQ(Lines(errors), 1) << errors;
  EXPECT_TRUE(absl::EndsWith(errors, absl::StrCat(" rendezvousd: can't listen on ", address, ": address in use\n")))
      << errors;
}

}  // namespace
}  // namespace ddprun::rendezvous

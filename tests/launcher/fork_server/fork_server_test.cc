// The client of the fork server with a real Python, and with programs that never call RunWorker.
#include "launcher/fork_server/fork_server.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/process/orphan_sweeper.h"
#include "tests/launcher/process/process_testing.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

class ForkServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(BecomeSubreaper().ok());
    loop_ = *EventLoop::Create();
  }

  ForkServer::Events Events() {
    ForkServer::Events events;
    events.on_started = [this](ForkServer::Ticket ticket, Child child) {
      started_.push_back(ticket);
      if (open_gates_) child.gate.Open();
      children_.push_back(std::move(child));
      loop_->Quit();
    };
    events.on_ended = [this](const absl::Status& why, const std::vector<ForkServer::Ticket>& not_started) {
      ended_ = why;
      not_started_ = not_started;
      loop_->Quit();
    };
    return events;
  }

  // Imports a module with this source.
  void Start(const std::string& module = "") {
    std::ofstream(folder_.File("module_of_test.py")) << module;
    std::ofstream(folder_.File("script.py")) << "import os\nos._exit(int(os.environ['CODE']))\n";
    const std::string venv = testing::VenvPython();
    ForkServer::Settings settings;
    settings.worker_argv = {venv.empty() ? "/usr/bin/python3" : venv, "-u", folder_.File("script.py")};
    settings.script = 2;
    settings.modules = "module_of_test";
    settings.environment = environment_;
    settings.stall_limit = stall_limit_;
    auto server = ForkServer::Start(std::move(settings), loop_.get(), Events());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void RunUntilStarted(size_t count) {
    while (started_.size() < count && !ended_) loop_->Run();
    ASSERT_EQ(started_.size(), count) << *ended_;
  }

  ForkServer::Request Request(int code) const {
    ForkServer::Request request;
    request.environment = environment_;
    request.environment.push_back(absl::StrCat("CODE=", code));
    return request;
  }

  bool open_gates_ = true;
  // Long, so that other tests do not fail on a loaded machine.
  absl::Duration stall_limit_ = absl::Seconds(30);
  testing::TempDir folder_;
  std::unique_ptr<EventLoop> loop_;
  std::vector<std::string> environment_ = {"PATH=/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1"};
  std::vector<ForkServer::Ticket> started_;
  std::vector<Child> children_;
  std::unique_ptr<ForkServer> server_;
  std::optional<absl::Status> ended_;
  std::vector<ForkServer::Ticket> not_started_;
};

TEST_F(ForkServerTest, Workers_AreChildrenOfThisProcess) {
  Start();
  const std::vector<ForkServer::Ticket> tickets = server_->Fork({Request(7), Request(8)});
  RunUntilStarted(2);
  for (size_t i = 0; i < 2; ++i) {
    const ProcessEnd end = WaitFor(children_[i]);
    EXPECT_EQ(end.ExitCode(), started_[i] == tickets[0] ? 7 : 8);
  }
}

TEST_F(ForkServerTest, Gate_Closed_ScriptDoesNotRun) {
  open_gates_ = false;
  Start();
  server_->Fork({Request(7), Request(8)});
  RunUntilStarted(2);
  EXPECT_FALSE(WaitReadable(children_[0].pidfd.get(), 100)) << "it did not wait";
  children_[0].gate = StartGate();
  EXPECT_EQ(WaitFor(children_[0]).ExitCode(), 128 + SIGKILL);
  kill(children_[1].pid, SIGKILL);
  EXPECT_EQ(WaitFor(children_[1]).ExitCode(), 128 + SIGKILL);
}

TEST_F(ForkServerTest, ImportWithoutProgress_Ends) {
  stall_limit_ = absl::Seconds(2);
  Start("import time\ntime.sleep(1000)\n");
  const pid_t pid = server_->pid();
  const std::vector<ForkServer::Ticket> tickets = server_->Fork({Request(0)});
  while (!ended_) loop_->Run();
  EXPECT_EQ(ended_->message(), "the imports have made no progress for 2s");
  EXPECT_EQ(not_started_, tickets);
  EXPECT_TRUE(testing::Eventually([&] { return !testing::Alive(pid); }));
}

TEST_F(ForkServerTest, SlowImportThatComputes_IsWaitedFor) {
  stall_limit_ = absl::Seconds(1);
  Start("import time\nend = time.monotonic() + 2.5\nwhile time.monotonic() < end: pass\n");
  server_->Fork({Request(0)});
  RunUntilStarted(1);
  for (const Child& child : children_) WaitFor(child);
}

TEST_F(ForkServerTest, StoppedServer_Ends) {
  stall_limit_ = absl::Seconds(2);
  Start();
  server_->Fork({Request(0)});
  RunUntilStarted(1);
  WaitFor(children_[0]);
  kill(server_->pid(), SIGSTOP);
  const std::vector<ForkServer::Ticket> tickets = server_->Fork({Request(0)});
  while (!ended_) loop_->Run();
  EXPECT_EQ(ended_->message(), "the fork server has not answered for 2s");
  EXPECT_EQ(not_started_, tickets);
}

TEST_F(ForkServerTest, SlowServer_AllAreStarted) {
  Start();
  server_->Fork({Request(0)});
  RunUntilStarted(1);
  kill(server_->pid(), SIGSTOP);
  // More than the socket's buffer: 4 MiB, which the kernel doubles.
  constexpr size_t kMany = 100;
  ForkServer::Request large = Request(0);
  large.environment.push_back("LARGE=" + std::string(100'000, 'x'));
  server_->Fork(std::vector<ForkServer::Request>(kMany, large));
  kill(server_->pid(), SIGCONT);
  RunUntilStarted(1 + kMany);
  for (const Child& child : children_) WaitFor(child);
}

TEST_F(ForkServerTest, CancelledBeforeItIsReady_IsNotStarted) {
  Start();
  const std::vector<ForkServer::Ticket> tickets = server_->Fork({Request(1), Request(2)});
  EXPECT_TRUE(server_->Cancel(tickets[0]));
  EXPECT_FALSE(server_->Cancel(tickets[0]));
  RunUntilStarted(1);
  ASSERT_EQ(started_, std::vector<ForkServer::Ticket>{tickets[1]});
  EXPECT_EQ(WaitFor(children_[0]).ExitCode(), 2);
  EXPECT_FALSE(server_->Cancel(tickets[1]));
}

TEST_F(ForkServerTest, NotAnInterpreter_Ends) {
  ForkServer::Settings settings;
  settings.worker_argv = {"/bin/true", "-u", "script.py"};
  settings.script = 2;
  settings.modules = "auto";
  const auto server = ForkServer::Start(std::move(settings), loop_.get(), Events());
  if (server.ok()) {
    loop_->Run();
    EXPECT_EQ(ended_->message(), "the fork server died");
  }
}

class ProgramTest : public ForkServerTest {
 protected:
  std::string EndOf(const std::vector<std::string>& argv) {
    ForkServer::Settings settings;
    settings.worker_argv = argv;
    settings.is_program = true;
    settings.stall_limit = stall_limit_;
    const auto server = ForkServer::Start(std::move(settings), loop_.get(), Events());
    if (!server.ok()) return std::string(server.status().message());
    const pid_t pid = (*server)->pid();
    const std::vector<ForkServer::Ticket> tickets = (*server)->Fork({Request(0)});
    while (!ended_) loop_->Run();
    EXPECT_EQ(not_started_, tickets);
    EXPECT_TRUE(testing::Eventually([&] { return !testing::Alive(pid); }));
    return std::string(ended_->message());
  }
};

TEST_F(ProgramTest, Ends) { EXPECT_EQ(EndOf({"/bin/true"}), "the program ended before reaching RunWorker"); }

TEST_F(ProgramTest, OtherProgram_IsKilled) {
  stall_limit_ = absl::Seconds(1);
  EXPECT_EQ(EndOf({"/bin/sh", "-c", "while :; do :; done"}), "the program did not reach RunWorker within 1s");
}

TEST_F(ProgramTest, IsLinkedWithWorkerRuntime_MarkOnly) {
  const auto write = [this](const std::string& text) {
    std::ofstream(folder_.File("program")) << text;
    return folder_.File("program");
  };
  EXPECT_TRUE(IsLinkedWithWorkerRuntime(write("\177ELF...ddprun worker runtime: can fork workers, protocol 2...")));
  EXPECT_FALSE(IsLinkedWithWorkerRuntime(write("#!/bin/sh\n# ddprun worker runtime: can fork workers, protocol 2\n")));
  EXPECT_FALSE(IsLinkedWithWorkerRuntime(write("\177ELF...ddprun worker runtime: can fork workers, protocol 3...")));
  EXPECT_FALSE(IsLinkedWithWorkerRuntime(write("")));
  EXPECT_FALSE(IsLinkedWithWorkerRuntime("launcher/ddprun")) << "it would start itself";
  EXPECT_FALSE(IsLinkedWithWorkerRuntime(folder_.File("missing")));
}

}  // namespace
}  // namespace ddprun::launcher

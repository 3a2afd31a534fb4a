// `ddprun --hosts` on one host, without ssh: real agents, keepers and launchers.
#include "launcher/hosts/host_agent.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/stream_writer.h"
#include "launcher/hosts/remote_start.h"
#include "launcher/io/file_descriptor.h"
#include "proto/hosts.pb.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

using hosts::v1::HostCommand;
using hosts::v1::HostReport;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::Process;

// An agent and the front's end of its connection.
class Agent {
 public:
  Agent(const std::string& input, const std::string& cache) {
    EXPECT_EQ(mkfifo(input.c_str(), 0600), 0);
    input_.reset(open(input.c_str(), O_RDWR | O_CLOEXEC));
    process_ = std::make_unique<Process>(
        std::vector<std::string>{"/bin/sh", "-c", absl::StrCat("exec launcher/ddprun ", kAgentArgument, " <", input)},
        std::map<std::string, std::string>{{"XDG_CACHE_HOME", cache}});
  }

  void Send(const HostCommand& command) {
    std::string frame;
    AppendFrame(command, &frame);
    EXPECT_EQ(WriteAll(input_.get(), frame), 0);
  }
  void Prepare(const std::string& token, bool detach = false) {
    HostCommand command;
    HostCommand::Prepare* const prepare = command.mutable_prepare();
    prepare->set_folder(std::filesystem::current_path());
    prepare->set_program(true);
    prepare->set_job("job/host");
    prepare->set_token(token);
    prepare->set_detach(detach);
    for (int stream = 0; stream < 2; ++stream) prepare->add_positions(0);
    Send(command);
  }
  // Starts a launcher with one worker, a shell.
  void Start(const std::string& script) {
    HostCommand command;
    for (const char* argument : {"--shutdown-timeout=60", "--no-python", "--", "sh", "-c", script.c_str()}) {
      command.mutable_start()->add_arguments(argument);
    }
    Send(command);
  }
  void Ping(bool hold_stdout = false) {
    HostCommand command;
    command.mutable_ping()->set_hold_stdout(hold_stdout);
    Send(command);
  }
  int Goodbye() {
    HostCommand command;
    command.mutable_goodbye();
    Send(command);
    return process_->Wait();
  }

  // Waits for the next report but Alive and Output.
  HostReport Next() {
    std::optional<HostReport> report;
    EXPECT_TRUE(Eventually([&] { return (report = Take()).has_value(); })) << process_->Err();
    return report.value_or(HostReport());
  }
  void WaitForOutput(bool is_stderr, const std::string& text) {
    EXPECT_TRUE(Eventually([&] {
      if (!next_) next_ = Take();
      return absl::StrContains(outputs_[is_stderr], text);
    })) << outputs_[false]
        << outputs_[true];
  }
  const std::string& output(bool is_stderr) const { return outputs_[is_stderr]; }

 private:
  std::optional<HostReport> Take() {
    if (next_) return std::exchange(next_, std::nullopt);
    std::string bytes = process_->Out().substr(taken_);
    HostReport report;
    bool error = false;
    for (size_t size = bytes.size(); TakeFrame(&bytes, &report, &error); size = bytes.size()) {
      taken_ += size - bytes.size();
      if (report.has_output()) outputs_[report.output().is_stderr()] += report.output().data();
      if (!report.has_output() && !report.has_alive()) return report;
    }
    return std::nullopt;
  }

  UniqueFd input_;
  std::unique_ptr<Process> process_;
  size_t taken_ = 0;                    // bytes of the agent's output
  std::array<std::string, 2> outputs_;  // the launcher's
  std::optional<HostReport> next_;      // taken while output was waited for
};

class HostAgentTest : public ::testing::Test {
 protected:
  std::unique_ptr<Agent> Connect() {
    return std::make_unique<Agent>(dir_.File(absl::StrCat("input", ++agents_)), dir_.File("cache"));
  }
  std::string Folder() const { return dir_.File("cache/ddprun/jobs/job/host"); }
  std::string Gate() const { return dir_.File("gate"); }

  testing::TempDir dir_;
  int agents_ = 0;
};

TEST_F(HostAgentTest, Job_IsFollowedToItsEnd_AndLeavesNothing) {
  const std::unique_ptr<Agent> agent = Connect();
  agent->Prepare("start");
  EXPECT_TRUE(agent->Next().has_facts());
  agent->Start("echo up; exit 3");
  EXPECT_EQ(agent->Next().following().folder(), Folder());
  agent->WaitForOutput(false, "up\n");
  const HostReport report = agent->Next();
  EXPECT_EQ(report.ended().code(), 3) << report.ShortDebugString();
  EXPECT_EQ(report.ended().failure().verdict().first_cause().rank(), 0) << report.ShortDebugString();
  EXPECT_EQ(agent->Goodbye(), 0);
  EXPECT_FALSE(std::filesystem::exists(Folder()));
}

// The keeper is this test, so that it sees each command.
TEST_F(HostAgentTest, Ping_RenewsTheLease_OnlyOfTheFrontsOwnJob) {
  std::filesystem::create_directories(Folder());
  std::ofstream(Folder() + "/token") << "start";
  ASSERT_EQ(mkfifo((Folder() + "/control").c_str(), 0600), 0);
  const UniqueFd control(open((Folder() + "/control").c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  for (const bool is_own : {true, false}) {
    const std::unique_ptr<Agent> agent = Connect();
    agent->Prepare(is_own ? "start" : "");
    EXPECT_TRUE(agent->Next().has_following());
    agent->Ping();
    HostCommand signal;
    signal.mutable_signal()->set_number(SIGUSR1);
    agent->Send(signal);
    std::vector<int> commands;
    EXPECT_TRUE(Eventually([&] {
      uint8_t command;
      if (read(control.get(), &command, 1) == 1) commands.push_back(command);
      return !commands.empty() && commands.back() == SIGUSR1;
    }));
    EXPECT_EQ(commands, is_own ? std::vector<int>({kRenewLease, SIGUSR1}) : std::vector<int>({SIGUSR1}));
  }
}

TEST_F(HostAgentTest, EndOfTheLease_IsNotTheEndOfTheJob) {
  const std::unique_ptr<Agent> agent = Connect();
  agent->Prepare("start");
  EXPECT_TRUE(agent->Next().has_facts());
  agent->Start(absl::StrCat("trap 'echo saves; while [ ! -e ", Gate(), " ]; do sleep 0.05; done; exit 0' TERM; ",
                            "echo up; while :; do sleep 0.05; done"));
  EXPECT_TRUE(agent->Next().has_following());
  agent->WaitForOutput(false, "up\n");
  std::ofstream(Folder() + "/control") << static_cast<char>(kFrontEnded);
  agent->WaitForOutput(false, "saves\n");
  // While the launcher stops.
  const std::unique_ptr<Agent> next = Connect();
  next->Prepare("start");
  EXPECT_THAT(next->Next().failed().reason(), HasSubstr("its lease has ended"));
  std::ofstream{Gate()};
  // The front that was still connected, too.
  EXPECT_THAT(agent->Next().failed().reason(), HasSubstr("its lease has ended"));
  EXPECT_FALSE(std::filesystem::exists(Folder()));
  const std::unique_ptr<Agent> last = Connect();
  last->Prepare("start");
  EXPECT_TRUE(last->Next().has_facts());
}

TEST_F(HostAgentTest, DetachedJob_IsNotFollowed_AndItsOutputStays) {
  for (const bool is_first : {true, false}) {  // the second one comes back because Following was lost
    const std::unique_ptr<Agent> agent = Connect();
    agent->Prepare("start", /*detach=*/true);
    if (is_first) {
      EXPECT_TRUE(agent->Next().has_facts());
      agent->Start("echo up");
    }
    EXPECT_TRUE(agent->Next().has_following());
    EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(Folder() + "/result"); }));
    EXPECT_EQ(agent->Goodbye(), 0);
  }
  const std::unique_ptr<Agent> follower = Connect();
  follower->Prepare("");
  EXPECT_TRUE(follower->Next().has_following());
  follower->WaitForOutput(false, "up\n");
  EXPECT_TRUE(follower->Next().has_ended());
  EXPECT_EQ(follower->Goodbye(), 0);
  EXPECT_TRUE(std::filesystem::exists(Folder()));
}

TEST_F(HostAgentTest, StreamThatTheFrontHolds_StaysOnTheHost) {
  const std::unique_ptr<Agent> agent = Connect();
  agent->Prepare("start");
  EXPECT_TRUE(agent->Next().has_facts());
  agent->Ping(/*hold_stdout=*/true);
  agent->Start("echo out; echo err >&2");
  EXPECT_TRUE(agent->Next().has_following());
  agent->WaitForOutput(true, "err\n");
  EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(Folder() + "/result"); }));
  EXPECT_EQ(agent->output(/*is_stderr=*/false), "");
  agent->Ping();
  agent->WaitForOutput(false, "out\n");
  EXPECT_TRUE(agent->Next().has_ended());
}

// The Python package gives the process that it starts a folder to remove if Python has ended.
TEST_F(HostAgentTest, FolderOfTheCaller_StaysWhileTheCallerLives) {
  const std::string folder = dir_.File("calls");
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/call") << "data";
  Process ddprun(
      {"launcher/ddprun", "--hosts=localhost", "--no-python", "true"},
      {{"XDG_CACHE_HOME", dir_.File("cache")}, {"DDPRUN_ENDS_WITH_PROCESS", absl::StrCat(getpid(), " ", folder)}});
  EXPECT_EQ(ddprun.Wait(), 0) << ddprun.Err();
  EXPECT_EQ(testing::ReadFile(folder + "/call"), "data");
}

TEST(HostLeaseTest, TakeSignal_StopsTheLauncher_AndKillsItLater) {
  SteadyTime now;
  HostLease lease(now);
  EXPECT_EQ(lease.NextDeadline(), now + absl::Seconds(60));
  now = now + absl::Seconds(59);
  EXPECT_EQ(lease.TakeSignal(now), 0);
  lease.Renew(now);
  EXPECT_EQ(lease.NextDeadline(), now + absl::Seconds(60));
  EXPECT_FALSE(lease.has_ended());
  now = lease.NextDeadline();
  EXPECT_EQ(lease.TakeSignal(now), SIGTERM);
  EXPECT_TRUE(lease.has_ended());
  EXPECT_EQ(lease.TakeSignal(now), 0);
  lease.Renew(now);  // too late
  lease.EndNow(now);
  EXPECT_EQ(lease.NextDeadline(), now + absl::Seconds(120));
  now = lease.NextDeadline();
  EXPECT_EQ(lease.TakeSignal(now), SIGKILL);
  EXPECT_EQ(lease.TakeSignal(now), 0);
  EXPECT_EQ(lease.NextDeadline(), SteadyTime::InfiniteFuture());
  EXPECT_TRUE(lease.has_ended());
}

TEST(HostLeaseTest, EndNow_EndsItAtOnce) {
  const SteadyTime now;
  HostLease lease(now);
  lease.EndNow(now);
  EXPECT_EQ(lease.TakeSignal(now), SIGTERM);
}

TEST(HostLeaseTest, Lease_OfADetachedJob_NeverEnds) {
  const SteadyTime now;
  HostLease lease;
  lease.Renew(now);
  lease.EndNow(now);
  EXPECT_EQ(lease.TakeSignal(now + absl::Hours(1000)), 0);
  EXPECT_FALSE(lease.has_ended());
  EXPECT_EQ(lease.NextDeadline(), SteadyTime::InfiniteFuture());
}

}  // namespace
}  // namespace ddprun::launcher

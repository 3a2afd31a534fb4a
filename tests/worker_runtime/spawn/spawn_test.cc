// Spawn with real processes: every behaviour of spawn_program.cc.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

constexpr char kProgram[] = "tests/worker_runtime/spawn/spawn_program";

class Program : public Process {
 public:
  explicit Program(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {})
      : Process(Argv(std::move(arguments)), WithoutLauncher(std::move(environment))) {}

  // The status that Spawn returned.
  std::string Returned() {
    const std::string out = Out();
    const size_t at = out.rfind("returned: ");
    return at == std::string::npos ? "nothing, but printed " + out + Err() : out.substr(at + 10, out.size() - at - 11);
  }

 private:
  static std::vector<std::string> Argv(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), kProgram);
    return arguments;
  }

  // Removes the variables of a launcher around this test.
  static std::map<std::string, std::string> WithoutLauncher(std::map<std::string, std::string> environment) {
    environment.insert({{"RANK", ""}, {"WORLD_SIZE", ""}, {"OMP_NUM_THREADS", ""}});
    return environment;
  }
};

std::vector<pid_t> HangingPids(const std::string& out) {
  std::vector<pid_t> pids;
  for (absl::string_view line : absl::StrSplit(out, '\n')) {
    pid_t pid = 0;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (words.size() == 3 && words[0] == "pid" && absl::SimpleAtoi(words[1], &pid)) pids.push_back(pid);
  }
  return pids;
}

TEST(SpawnTest, Spawn_ThreeWorkers_HaveRanksAndMeet) {
  Program program({"add", "3"});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  EXPECT_EQ(program.Returned(), "OK");
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_TRUE(absl::StrContains(
        program.Out(), absl::StrCat("rank ", rank, "/3 local ", rank, "/3 sum 6 omp 1 stdin empty mark gone\n")))
        << program.Out();
  }
}

TEST(SpawnTest, Spawn_OneProcess_IsAWorker) {
  Program program({"add", "1"}, {{"OMP_NUM_THREADS", "3"}});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  EXPECT_TRUE(absl::StrContains(program.Out(), "rank 0/1 local 0/1 sum 1 omp 3 ")) << program.Out();
}

TEST(SpawnTest, Spawn_Arguments_ReachTheWorkers) {
  Program program({"add", "2", "", "a b"});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  size_t lines = 0;
  for (absl::string_view line : absl::StrSplit(program.Out(), '\n'))
    lines += line == "main with 5 arguments, the last is a b";
  EXPECT_EQ(lines, 3) << program.Out();
}

TEST(SpawnTest, Spawn_SecondCall_HasItsOwnWorkers) {
  Program program({"twice"});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  EXPECT_TRUE(absl::StrContains(program.Out(), "second call, rank 0\n")) << program.Out();
  EXPECT_TRUE(absl::StrContains(program.Out(), "second call, rank 1\n")) << program.Out();
  EXPECT_EQ(program.Returned(), "OK");
}

TEST(SpawnTest, Spawn_WorkerFails_ReturnsItsErrorAndLeavesNoWorker) {
  const struct {
    std::vector<std::string> arguments;
    const char *begins, *contains;
    std::map<std::string, std::string> environment = {};
  } cases[] = {
      {{"fail", "3"}, "ABORTED: worker 1 of 3 failed: ", "the weights are not finite"},
      {{"throw"}, "ABORTED: worker 1 of 2 failed: ", "shape '[3]' is invalid for input of size 2"},
      {{"kill"}, "ABORTED: worker 1 of 2 was killed by SIGKILL", ""},
      {{"exit"}, "ABORTED: worker 1 of 2 exited with code 7", ""},
      {{"hang"}, "", "the others hang"},
      {{"stubborn"}, "", "the others do not listen"},
      {{"lost"},
       "",
       "of 2 exited with code 0 before it reached Spawn; main must reach the same call of Spawn in every"},
      {{"nested"}, "", "this process is already a worker (RANK=1); call RunWorker instead"},
      {{"add", "0"}, "INVALID_ARGUMENT: nprocs is 0, but must be at least 1", ""},
      {{"add"},
       "FAILED_PRECONDITION: this process is already a worker (RANK=0)",
       "",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}}},
      {{"ignored"}, "FAILED_PRECONDITION: SIGCHLD is ignored", ""},
      {{"add"}, "FAILED_PRECONDITION: DDPRUN_SPAWN was not set by Spawn; unset it", "", {{"DDPRUN_SPAWN", "yes"}}},
  };
  for (const auto& [arguments, begins, contains, environment] : cases) {
    Program program(arguments, environment);
    EXPECT_EQ(program.Wait(), 1);
    EXPECT_TRUE(absl::StartsWith(program.Returned(), begins)) << program.Returned();
    EXPECT_TRUE(absl::StrContains(program.Returned(), contains)) << program.Returned();
    for (const pid_t pid : HangingPids(program.Out())) EXPECT_FALSE(Alive(pid));
  }
}

TEST(SpawnTest, Spawn_CallerIsKilled_WorkersEnd) {
  Program program({"wait", "3"});
  ASSERT_TRUE(Eventually([&] { return HangingPids(program.Out()).size() == 3; })) << program.Err();
  const std::vector<pid_t> pids = HangingPids(program.Out());
  program.Signal(SIGKILL);
  EXPECT_EQ(program.Wait(), 128 + SIGKILL);
  EXPECT_TRUE(Eventually([&] {
    for (const pid_t pid : pids) {
      if (Alive(pid)) return false;
    }
    return true;
  }));
}

}  // namespace
}  // namespace ddprun::testing

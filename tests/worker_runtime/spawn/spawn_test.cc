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

// None of the variables of a launcher around this test.
std::map<std::string, std::string> Environment(std::map<std::string, std::string> more = {}) {
  more.insert({{"RANK", ""}, {"WORLD_SIZE", ""}, {"OMP_NUM_THREADS", ""}});
  return more;
}

class Program : public Process {
 public:
  explicit Program(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {})
      : Process(Argv(std::move(arguments)), Environment(std::move(environment))) {}

  // What Spawn returned.
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

TEST(SpawnTest, Workers_HaveTheirRanksAndMeet) {
  Program program({"add", "3"});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  EXPECT_EQ(program.Returned(), "OK");
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_TRUE(absl::StrContains(
        program.Out(), absl::StrCat("rank ", rank, "/3 local ", rank, "/3 sum 6 omp 1 stdin empty mark gone\n")))
        << program.Out();
  }
}

TEST(SpawnTest, OneProcess_IsAWorkerToo) {
  Program program({"add", "1"}, {{"OMP_NUM_THREADS", "3"}});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  EXPECT_TRUE(absl::StrContains(program.Out(), "rank 0/1 local 0/1 sum 1 omp 3 ")) << program.Out();
}

TEST(SpawnTest, Arguments_ReachTheWorkers) {
  Program program({"add", "2", "", "a b"});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  size_t lines = 0;
  for (absl::string_view line : absl::StrSplit(program.Out(), '\n'))
    lines += line == "main with 5 arguments, the last is a b";
  EXPECT_EQ(lines, 3) << program.Out();
}

TEST(SpawnTest, SecondCall_HasWorkersOfItsOwn) {
  Program program({"twice"});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  EXPECT_TRUE(absl::StrContains(program.Out(), "second call, rank 0\n")) << program.Out();
  EXPECT_TRUE(absl::StrContains(program.Out(), "second call, rank 1\n")) << program.Out();
  EXPECT_EQ(program.Returned(), "OK");
}

TEST(SpawnTest, AWorkersError_IsReturnedWithItsText) {
  Program program({"fail", "3"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_TRUE(absl::StartsWith(program.Returned(), "ABORTED: worker 1 of 3 failed: ")) << program.Returned();
  EXPECT_TRUE(absl::StrContains(program.Returned(), "the weights are not finite")) << program.Returned();
}

TEST(SpawnTest, AWorkersException_IsReturnedWithItsText) {
  Program program({"throw"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_TRUE(absl::StartsWith(program.Returned(), "ABORTED: worker 1 of 2 failed: ")) << program.Returned();
  EXPECT_TRUE(absl::StrContains(program.Returned(), "shape '[3]' is invalid for input of size 2"))
      << program.Returned();
}

TEST(SpawnTest, AKilledWorker_IsNamedWithItsSignal) {
  Program program({"kill", "2"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_EQ(program.Returned(), "ABORTED: worker 1 of 2 was killed by SIGKILL");
}

TEST(SpawnTest, AWorkerThatExits_IsNamedWithItsCode) {
  Program program({"exit"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_EQ(program.Returned(), "ABORTED: worker 1 of 2 exited with code 7");
}

TEST(SpawnTest, WorkersThatHangAfterAFailure_AreStopped) {
  Program program({"hang", "2"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_TRUE(absl::StrContains(program.Returned(), "the others hang")) << program.Returned();
  for (const pid_t pid : HangingPids(program.Out())) EXPECT_FALSE(Alive(pid));
}

TEST(SpawnTest, WorkersThatIgnoreSigterm_AreKilled) {
  Program program({"stubborn", "2"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_TRUE(absl::StrContains(program.Returned(), "the others do not listen")) << program.Returned();
  for (const pid_t pid : HangingPids(program.Out())) EXPECT_FALSE(Alive(pid));
}

TEST(SpawnTest, WorkersOfAKilledProcess_DieWithIt) {
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

TEST(SpawnTest, AWorkerThatDoesNotComeToTheCall_IsAnError) {
  Program program({"lost"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_TRUE(absl::EndsWith(program.Returned(),
                             "of 2 exited with code 0 before it reached Spawn; main "
                             "must reach the same call of Spawn in every worker"))
      << program.Returned();
}

TEST(SpawnTest, InsideAWorker_IsAnError) {
  Program program({"nested"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_TRUE(
      absl::StrContains(program.Returned(), "this process is already a worker (RANK=1); call RunWorker instead"))
      << program.Returned();
}

TEST(SpawnTest, Misuse_IsExplained) {
  Program none({"add", "0"});
  none.Wait();
  EXPECT_EQ(none.Returned(), "INVALID_ARGUMENT: nprocs is 0, but must be at least 1");
  Program launched({"add"}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  launched.Wait();
  EXPECT_TRUE(absl::StartsWith(launched.Returned(), "FAILED_PRECONDITION: this process is already a worker (RANK=0)"))
      << launched.Returned();
  Program ignored({"ignored"});
  ignored.Wait();
  EXPECT_TRUE(absl::StartsWith(ignored.Returned(), "FAILED_PRECONDITION: SIGCHLD is ignored")) << ignored.Returned();
  Program marked({"add"}, {{"DDPRUN_SPAWN", "yes"}});
  marked.Wait();
  EXPECT_EQ(marked.Returned(), "FAILED_PRECONDITION: DDPRUN_SPAWN was not set by Spawn; unset it");
}

}  // namespace
}  // namespace ddprun::testing

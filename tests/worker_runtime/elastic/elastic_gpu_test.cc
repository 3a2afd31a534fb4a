// Elastic trainings on simulated GPUs, under real launchers, with workers and devices that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/simgpu/simulated_gpus.h"
#include "tests/worker_runtime/elastic/elastic_output.h"

namespace ddprun::testing {
namespace {

constexpr int64_t kSteps = 8;

constexpr char kNccl2[] = "cpu:gloo,cuda:nccl2";

using Environment = std::map<std::string, std::string>;

std::vector<std::string> Flags(int ranks, const std::string& backend, std::vector<std::string> more = {},
                               std::vector<std::string> launcher = {}) {
  std::vector<std::string> flags = {"--standalone", absl::StrCat("--nproc-per-node=", ranks), "--max-restarts=3"};
  flags.insert(flags.end(), launcher.begin(), launcher.end());
  std::vector<std::string> program = {"--no-python", "tests/worker_runtime/elastic/elastic_program", "--device=cuda",
                                      absl::StrCat("--steps=", kSteps)};
  if (!backend.empty()) program.push_back("--backend=" + backend);
  flags.insert(flags.end(), program.begin(), program.end());
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Output of a training without failures, which runs once for each number of ranks and backend: Gloo and NCCL add in
// different orders.
const std::string& ReferenceOf(int ranks, const std::string& backend) {
  static auto* const made = new std::map<std::pair<int, std::string>, std::string>;
  std::string& out = (*made)[{ranks, backend}];
  if (out.empty()) out = Finished(0, Flags(ranks, backend), SimulatedGpus(ranks)).Out();
  return out;
}

// Expects that the job succeeds with the steps and the bits of one without a failure, that the process of the rank
// `replaced` (-1: of none) was replaced once, and that no survivor repeated a step. The launcher also replaces a
// survivor that does not stop within 30 s.
void ExpectRecovery(Launcher& launcher, int ranks, const std::string& backend, int replaced) {
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Out() << launcher.Err();
  const std::string out = launcher.Out();
  ExpectSameTraining(out, ReferenceOf(ranks, backend), kSteps);
  for (const auto& [rank, starts] : StartsIn(out)) {
    EXPECT_EQ(starts, rank == replaced ? 2 : 1) << "rank " << rank << "\n" << launcher.Err();
    if (rank == replaced) continue;
    for (int64_t step = 1; step <= kSteps; ++step) {
      EXPECT_EQ(Count(out, absl::StrCat("step ", step, " rank ", rank, " loss")), 1) << out;
    }
  }
}

struct Fault {
  std::string where;  // a value of SIMCUDA_DIE
  int ranks = 2;
  std::string backend = "";
  std::string variable = "SIMCUDA_DIE";
  Environment more = {};

  int rank() const { return where[0] - '0'; }
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) {
  out << fault.variable << "=" << fault.where << " of " << fault.ranks << " " << fault.backend;
  for (const auto& [name, value] : fault.more) out << " " << name << "=" << value;
  return out;
}

class ElasticGpuTest : public ::testing::TestWithParam<Fault> {
 protected:
  // Runs the job with the fault, and expects that it occurs.
  void Run(int replaced) {
    const Fault& fault = GetParam();
    if (fault.backend == kNccl2 && !HasNccl2()) GTEST_SKIP() << "this LibTorch has no nccl2";
    const TempDir folder;
    const std::string once = folder.File("once");
    Environment environment = fault.more;
    environment.insert({{fault.variable, fault.where}, {"SIMCUDA_DIE_ONCE", once}});
    Launcher launcher(Flags(fault.ranks, fault.backend), SimulatedGpus(fault.ranks, environment));
    ExpectRecovery(launcher, fault.ranks, fault.backend, replaced);
    EXPECT_EQ(access(once.c_str(), F_OK), 0) << "the fault did not occur";
  }
};

using RankDies = ElasticGpuTest;
TEST_P(RankDies, OnlyItsProcessIsReplaced_AndTheBitsAreTheSame) { Run(GetParam().rank()); }

INSTANTIATE_TEST_SUITE_P(
    All, RankDies,
    ::testing::Values(
        // While the others wait for it: to create the communicator, in a forward or backward, in a collective.
        Fault{"1:create:1"}, Fault{"1:init:1"}, Fault{"2:create:1", 4}, Fault{"0:aten::addmm:9"},
        Fault{"1:aten::threshold_backward:5"}, Fault{"0:before:30"}, Fault{"1:middle:30"}, Fault{"1:after:30"},
        Fault{"2:middle:31", 4}, Fault{"1:middle:30", 2, "nccl"},
        // The same with the engine that is Python's default.
        Fault{"1:create:1", 2, kNccl2}, Fault{"2:create:1", 4, kNccl2}, Fault{"1:init:1", 2, kNccl2},
        Fault{"0:aten::addmm:9", 2, kNccl2}, Fault{"0:before:30", 2, kNccl2}, Fault{"1:middle:30", 2, kNccl2},
        Fault{"1:after:30", 4, kNccl2}, Fault{"1:middle:30", 2, kNccl2, "SIMCUDA_DIE", {{"SIMNCCL_ABORT_WAITS", "1"}}},
        Fault{"0:before:25", 2, kNccl2, "SIMCUDA_DIE", {{"SIMNCCL_LAUNCH_MS", "5"}}},
        // Gloo moves CUDA tensors through the host.
        Fault{"1:aten::addmm:9", 2, "cuda:gloo"}, Fault{"3:aten::threshold_backward:4", 4, "cuda:gloo"},
        // Rules of NCCL that are not documented, and a slow device.
        Fault{"1:middle:30", 2, "", "SIMCUDA_DIE", {{"SIMNCCL_REMOTE_ERROR", "0"}}},
        Fault{"1:middle:30", 2, "", "SIMCUDA_DIE", {{"SIMNCCL_ABORT_WAITS", "1"}}},
        Fault{"0:before:25", 2, "", "SIMCUDA_DIE", {{"SIMNCCL_LAUNCH_MS", "5"}}},
        Fault{"1:after:22", 4, "", "SIMCUDA_DIE", {{"SIMNCCL_LAUNCH_MS", "5"}, {"SIMNCCL_REMOTE_ERROR", "0"}}},
        Fault{"1:middle:30", 2, "", "SIMCUDA_DIE", {{"SIMCUDA_DELAY_US", "300"}}}));

using DeviceBreaks = ElasticGpuTest;
TEST_P(DeviceBreaks, OnlyItsProcessIsReplaced_AndTheBitsAreTheSame) { Run(GetParam().rank()); }

INSTANTIATE_TEST_SUITE_P(All, DeviceBreaks,
                         ::testing::Values(Fault{"1:aten::addmm:9", 2, "", "SIMCUDA_FAULT"},
                                           Fault{"0:middle:30", 2, "", "SIMCUDA_FAULT"},
                                           Fault{"0:middle:30", 2, kNccl2, "SIMCUDA_FAULT"},
                                           Fault{"2:aten::threshold_backward:5", 4, "", "SIMCUDA_FAULT"}));

using NcclFails = ElasticGpuTest;
TEST_P(NcclFails, NoProcessIsReplaced_AndTheBitsAreTheSame) { Run(/*replaced=*/-1); }

INSTANTIATE_TEST_SUITE_P(All, NcclFails,
                         ::testing::Values(Fault{"1:before:30", 2, "", "SIMNCCL_FAIL"},
                                           Fault{"1:before:30", 2, kNccl2, "SIMNCCL_FAIL"},
                                           Fault{"0:before:30", 4, "", "SIMNCCL_FAIL"}));

// Both ranks survive NCCL's error.
TEST(ElasticGpu, LogOfLibTorch_IsShownIfTheJobFails) {
  for (const bool fails : {false, true}) {
    const TempDir folder;
    const Environment environment = {{"SIMNCCL_FAIL", "1:before:30"}, {"SIMCUDA_DIE_ONCE", folder.File("once")}};
    std::vector<std::string> flags = Flags(2, "");
    if (fails) flags.insert(flags.begin() + 3, "--max-restarts=0");
    Launcher launcher(flags, SimulatedGpus(2, environment));
    EXPECT_EQ(launcher.Wait(), fails ? 1 : 0) << launcher.Err();
    EXPECT_EQ(Count(launcher.Err(), " ProcessGroupNCCL") > 0, fails) << launcher.Err();
    for (const char* rank : {"rank 0: ", "rank 1: "}) {
      EXPECT_EQ(Count(launcher.Err(), absl::StrCat(rank, "LibTorch logged ")), fails ? 0 : 1) << launcher.Err();
    }
  }
}

TEST(ElasticGpu, DeviceThatIsMissingOrUsedTwice_IsNotRestarted) {
  for (const auto& [device, why] : std::map<std::string, std::string>{
           {"cuda:7", "no device cuda:7: this process sees 2 GPUs"}, {"cuda:0", "use the same GPU"}}) {
    Launcher launcher(Flags(2, "", {"--device=" + device}), SimulatedGpus(2));
    EXPECT_EQ(launcher.Wait(), 78) << launcher.Err();
    EXPECT_THAT(launcher.Err(), ::testing::HasSubstr(why));
    EXPECT_LE(ProcessesIn(launcher.Out()).size(), 2);
  }
}

TEST(ElasticGpu, Preload_RankDies_OnlyItIsForkedAgain) {
  const TempDir folder;
  const Environment environment = {
      {"SIMCUDA_DIE", "1:middle:30"}, {"SIMCUDA_DIE_ONCE", folder.File("once")}, {"LOGLEVEL", "INFO"}};
  Launcher launcher(Flags(2, "", {}, {"--preload"}), SimulatedGpus(2, environment));
  ExpectRecovery(launcher, 2, "", 1);
  EXPECT_THAT(launcher.Err(), ::testing::HasSubstr("reached RunWorker"));
}

// The others time out, and the launcher kills the stopped process after --shutdown-timeout.
TEST(ElasticGpu, StoppedRank_IsReplacedAfterTheTimeout) {
  Launcher launcher(Flags(2, "", {"--timeout=3", "--hold=1:3:forward"}, {"--shutdown-timeout=2"}), SimulatedGpus(2));
  ASSERT_TRUE(launcher.WaitForOut("holding forward")) << launcher.Err();
  for (const auto& [rank, pid] : ProcessesIn(launcher.Out())) {
    if (rank == 1) kill(pid, SIGSTOP);
  }
  ExpectRecovery(launcher, 2, "", 1);
}

}  // namespace
}  // namespace ddprun::testing

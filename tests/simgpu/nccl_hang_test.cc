// Hangs of a Python script over NCCL on simulated GPUs: each names the right rank, with where it is and what it waits
// for. NCCL runs on the device, and a rank's main thread may be ahead of it.
#include <map>
#include <string>
#include <vector>

#include "tests/hang/hang_case.h"
#include "tests/simgpu/simulated_gpus.h"

namespace ddprun::testing {
namespace {

class NcclHangTest : public ::testing::TestWithParam<Hang> {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "there is no .venv with torch";
  }

  static std::vector<std::string> Flags() {
    return HangFlags({"--standalone", "--nproc-per-node=3"}, {"tests/hang/train.py"});
  }
  std::map<std::string, std::string> Environment() const {
    return SimulatedGpus(3, {{"PYTHON_EXEC", VenvPython()},
                             {"BACKEND", "nccl"},
                             {"FOLDER", folder_.path()},
                             {"SIMNCCL_MISMATCH_HANGS", "1"},
                             {"SIMNCCL_REMOTE_ERROR", "0"}});
  }

  const TempDir folder_;
};

TEST_P(NcclHangTest, Hang_NamesRankPlaceAndReason) { ExpectNamed(GetParam(), Flags(), Environment()); }

INSTANTIATE_TEST_SUITE_P(
    All, NcclHangTest,
    ::testing::Values(Hang{"sleep", {"for rank 1, which sleeps at train.py:", " in sleep"}},
                      Hang{"locks", {"for rank 1, which waits for ", " in locks"}},
                      Hang{"gil", {"for rank 1, which waits for Python's lock (GIL)", " in native"}},
                      Hang{"stop", {"for rank 1, which is stopped (SIGSTOP)"}},
                      Hang{"spin", {"for rank 1, which is busy", " in spin"}, {{"TIMEOUT", "30"}}},
                      Hang{"leave", {"for rank 1, which exited with code 0"}},
                      Hang{"other", {"rank 1 entered broadcast", " instead"}},
                      Hang{"barrier", {"rank 1 entered ", " instead"}},
                      Hang{"receive", {"rank 1 waits in recv 1<-0 #2", " of the default group for rank 0"}},
                      Hang{"order",
                           {"wait for each other: rank 0 waits in all_reduce #2 (Float[1]) of group 1 for rank 1"}},
                      Hang{"own_group", {"rank 1 waits in all_reduce #2 (Float[1]) of group 1 for rank 0"}}),
    NameOf);

// NCCL does not check sizes: the job continues with wrong numbers.
TEST_F(NcclHangTest, Sizes_DifferAndNothingHangs_IsReported) {
  std::map<std::string, std::string> environment = Environment();
  environment.merge(std::map<std::string, std::string>{{"HANG", "sizes"}, {"SIMNCCL_ANY_SIZE", "1"}});
  // A short limit makes comparisons frequent.
  Launcher launcher({"--standalone", "--nproc-per-node=3", "--on-hang=report:2", "tests/hang/train.py"}, environment);
  EXPECT_TRUE(launcher.WaitForOut("step 20")) << launcher.Err();
  EXPECT_TRUE(launcher.WaitForErr("entered different operations: ")) << launcher.Err();
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("ranks 0, 2 entered all_reduce #"), HasSubstr("Float[2]")));
  launcher.Signal(SIGKILL);
}

}  // namespace
}  // namespace ddprun::testing

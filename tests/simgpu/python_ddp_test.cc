// Python trainers over NCCL on simulated GPUs.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/e2e/launch.h"
#include "tests/simgpu/simulated_gpus.h"

namespace ddprun::testing {
namespace {

class PythonDdpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "there is no .venv with torch";
  }

  // Two ranks that train until the end; returns their output.
  std::string Train(std::vector<std::string> arguments, const std::string& preload = "--preload=none") {
    std::vector<std::string> flags = {"--standalone", "--nproc-per-node=2", "--max-restarts=1", preload,
                                      "tests/simgpu/python_ddp.py"};
    flags.insert(flags.end(), arguments.begin(), arguments.end());
    Finished launcher(0, flags, SimulatedGpus(2, {{"PYTHON_EXEC", VenvPython()}, {"LOGLEVEL", "INFO"}}));
    EXPECT_EQ(absl::StrContains(launcher.Err(), " imported "), preload == "--preload") << launcher.Err();
    return launcher.Out();
  }

  // The line in `out` that starts with `start`.
  static std::string LineOf(const std::string& out, const std::string& start) {
    const size_t at = out.find(start);
    return at == std::string::npos ? "" : out.substr(at, out.find('\n', at) - at);
  }

  const TempDir folder_;
};

TEST_F(PythonDdpTest, PythonDdp_RankDies_RestartedJobHasTheSameLosses) {
  const std::string whole = Train({folder_.File("whole")});
  // A process that has imported torch and opened no GPU can be forked.
  for (const char* preload : {"--preload=none", "--preload"}) {
    const std::string restarted = Train({folder_.File(preload), "5"}, preload);
    for (const char* start : {"rank 0 ends with loss ", "rank 1 ends with loss "}) {
      EXPECT_NE(LineOf(whole, start), "") << whole;
      EXPECT_EQ(LineOf(restarted, start), LineOf(whole, start));
    }
    // Rank 0 may have saved the step in which rank 1 died, or not.
    EXPECT_EQ(Count(restarted, " resumes after step "), 2) << restarted;
  }
}

}  // namespace
}  // namespace ddprun::testing

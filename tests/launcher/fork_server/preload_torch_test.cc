// PyTorch in workers forked from a process that has imported it, against workers that import it themselves.
#include "tests/launcher/fork_server/preload_testing.h"

namespace ddprun::testing {
namespace {

class PreloadTorchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  }

  // Sorted output lines of the workers.
  static std::string Run(const std::string& preload, int workers, const std::string& what, int exit_code,
                         std::string* err) {
    Finished launcher(exit_code,
                      {"--standalone", absl::StrCat("--nproc-per-node=", workers), preload,
                       "tests/launcher/fork_server/torch_worker.py", what},
                      {{"PYTHON_EXEC", VenvPython()}, {"LOGLEVEL", "INFO"}});
    *err = launcher.Err();
    return SortedLines(launcher.Out());
  }
  static std::string ExpectAlike(int workers, const std::string& what, int exit_code = 0) {
    std::string forked_err, started_err;
    const std::string forked = Run("--preload=auto", workers, what, exit_code, &forked_err);
    EXPECT_EQ(forked, Run("--preload=none", workers, what, exit_code, &started_err));
    EXPECT_EQ(Count(forked_err, " imported faulthandler,os,random,sys,numpy,torch,torch.distributed,"), 1)
        << forked_err;
    for (const char* refusal : {"imports for itself", "leaves out"})
      EXPECT_EQ(Count(forked_err, refusal), 0) << forked_err;
    return forked;
  }
};

TEST_F(PreloadTorchTest, Training_IsAlikeBitForBit) { ExpectAlike(2, "train"); }

TEST_F(PreloadTorchTest, DataLoaderInAllContexts_IsAlike) { ExpectAlike(2, "load"); }

TEST_F(PreloadTorchTest, Compile_IsAlike) { ExpectAlike(1, "compile"); }

// The settings of the imports take effect as well.
TEST_F(PreloadTorchTest, Environment_IsAlike) {
  EXPECT_EQ(Count(ExpectAlike(2, "environment"), "'WORLD_SIZE', '2'"), 2);
}

TEST_F(PreloadTorchTest, RandomNumbers_DifferBetweenWorkers) {
  EXPECT_EQ(Count(ExpectAlike(3, "draw"), "different 3 "), 3 * 4);
}

TEST_F(PreloadTorchTest, RecordedError_IsInTheSummary) {
  std::string err;
  Run("--preload", 2, "fail", 1, &err);
  EXPECT_EQ(Count(err, "message   : ValueError: recorded"), 1) << err;
}

}  // namespace
}  // namespace ddprun::testing

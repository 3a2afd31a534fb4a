// PyTorch in workers forked from a process that has imported it, against workers that import it themselves.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"

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
    std::vector<std::string> lines = absl::StrSplit(launcher.Out(), '\n');
    std::sort(lines.begin(), lines.end());
    *err = launcher.Err();
    return absl::StrJoin(lines, "\n");
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

TEST_F(PreloadTorchTest, TrainingFromAKeptServer_IsAlikeBitForBit) {
  char run[] = "/tmp/ddprun-keep-XXXXXX";
  ASSERT_NE(mkdtemp(run), nullptr);
  const std::map<std::string, std::string> environment = {
      {"PYTHON_EXEC", VenvPython()}, {"LOGLEVEL", "INFO"}, {"XDG_RUNTIME_DIR", run}};
  std::vector<std::string> outputs;
  for (const char* keep : {"--preload-keep=none", "--preload-keep", "--preload-keep"}) {
    Finished job(0,
                 {"--standalone", "--nproc-per-node=2", "--preload", keep, "tests/launcher/fork_server/torch_worker.py",
                  "train"},
                 environment);
    std::vector<std::string> lines = absl::StrSplit(job.Out(), '\n');
    std::sort(lines.begin(), lines.end());
    outputs.push_back(absl::StrJoin(lines, "\n"));
    EXPECT_EQ(outputs.back(), outputs.front());
    if (outputs.size() == 3) EXPECT_EQ(Count(job.Err(), "is a copy of a kept one"), 1) << job.Err();
  }
  Process stop({"ddprunctl/ddprunctl", "preload", "stop"}, environment);
  EXPECT_EQ(stop.Wait(), 0);
  EXPECT_EQ(Count(stop.Out(), "stopped: "), 1);
  rmdir(absl::StrCat(run, "/ddprun").c_str());
  EXPECT_EQ(rmdir(run), 0);
}

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

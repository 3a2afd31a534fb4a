// The C interface, used by programs in C and in Python.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/testing/rank_processes.h"

namespace ddprun::testing {
namespace {

constexpr char kProgram[] = "tests/worker_runtime/c_api/c_program";
constexpr char kLibrary[] = "worker_runtime/c_api/libddprun_c.so";

TEST(CApiTest, CProgram_UnderTheLauncher_NumbersAndErrorsAreRight) {
  Finished job(0, {"--standalone", "--nproc-per-node=2", "--no-python", kProgram, "collectives"});
  EXPECT_THAT(job.Out(), HasSubstr("rank 0 of 2 ready\n"));
  EXPECT_THAT(job.Out(), HasSubstr("rank 1 of 2 ready\n"));
  EXPECT_THAT(job.Out(), HasSubstr("code 0, 0 failures\n"));
  EXPECT_THAT(job.Out(), Not(HasSubstr("FAILED")));
}

TEST(CApiTest, Ctypes_UnderTheLauncher_NumbersAreRight) {
  const std::string python = VenvPython();
  if (python.empty()) GTEST_SKIP() << "there is no .venv";
  Finished job(0, {"--standalone", "--nproc-per-node=2", "--no-python", python,
                   "tests/worker_runtime/c_api/ctypes_program.py", kLibrary});
  for (const char* line : {"rank 0 passed\n", "rank 1 passed\n"}) EXPECT_THAT(job.Out(), HasSubstr(line)) << job.Err();
}

TEST(CApiTest, ElasticCProgram_RankKilled_OtherKeepsItsProcessAndUndoesTheStep) {
  Launcher job({"--standalone", "--nproc-per-node=2", "--max-restarts=1", "--no-python", kProgram, "elastic"});
  ASSERT_TRUE(job.WaitForOut(" waits\n")) << job.Err();
  const std::string out = job.Out();
  kill(std::stoi(out.substr(out.find("pid ") + 4)), SIGKILL);
  EXPECT_EQ(job.Wait(), 0) << job.Err();
  for (const char* line : {"round of rank 0 from step 0 with sum 0\n", "round of rank 0 from step 3 with sum 9\n",
                           "round of rank 1 from step 3 with sum 9\n", "rank 0 has sum 18 after 2 rounds\n",
                           "rank 1 has sum 18 after 1 rounds\n"}) {
    EXPECT_THAT(job.Out(), HasSubstr(line)) << job.Err();
  }
  EXPECT_THAT(job.Out(), Not(HasSubstr("FAILED")));
}

class CRanksTest : public ::testing::Test {
 protected:
  std::map<std::string, std::string> Environment(int rank) const {
    return {{"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", absl::StrCat(port_)},
            {"WORLD_SIZE", "2"},
            {"RANK", absl::StrCat(rank)}};
  }
  const int port_ = FreePort();
};

TEST_F(CRanksTest, AllReduce_RankKilled_SurvivorGetsUnavailableWithItsName) {
  Process survivor({kProgram, "loop"}, Environment(0));
  Process victim({kProgram, "loop"}, Environment(1));
  ASSERT_TRUE(survivor.WaitForOut("ready")) << survivor.Err();
  ASSERT_TRUE(victim.WaitForOut("ready")) << victim.Err();
  victim.Signal(SIGKILL);
  EXPECT_EQ(survivor.Wait(), 1);
  EXPECT_THAT(survivor.Out(), HasSubstr("code 14, 0 failures\n"));  // DDPRUN_UNAVAILABLE
  EXPECT_THAT(survivor.Err(),
              HasSubstr(absl::StrCat("rank 1 (host ", HostName(), ", pid ", victim.pid(), ") exited or was killed")));
}

TEST_F(CRanksTest, Create_VariableMissing_ErrorNamesIt) {
  Process program({kProgram}, {{"RANK", "0"}, {"WORLD_SIZE", ""}});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_THAT(program.Out(), HasSubstr("code 3, 0 failures\n"));  // DDPRUN_INVALID_ARGUMENT
  EXPECT_THAT(program.Err(), HasSubstr("rank 0: WORLD_SIZE is not set, but RANK=0 is"));
}

}  // namespace
}  // namespace ddprun::testing

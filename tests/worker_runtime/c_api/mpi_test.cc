// Groups whose ranks another system has assigned: plain processes, and a trainer under mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kLibrary[] = "worker_runtime/c_api/libddprun_c.so";

TEST(MpiTest, CreateFromRanks_PlainProcesses_ExchangeTheAddress) {
  const std::string python = VenvPython();
  if (python.empty()) GTEST_SKIP() << "there is no .venv";
  Process ranks({python, "tests/worker_runtime/c_api/ctypes_ranks.py", kLibrary});
  EXPECT_EQ(ranks.Wait(), 0) << ranks.Err();
  EXPECT_EQ(ranks.Out(), "both ranks passed\n") << ranks.Err();
}

TEST(MpiTest, Trainer_UnderMpirun_LearnsWithBothReductions) {
  Process found({"/bin/sh", "-c", "command -v mpicc && command -v mpirun"});
  if (found.Wait() != 0) GTEST_SKIP() << "there is no mpicc or mpirun (Debian: libopenmpi-dev, openmpi-bin)";
  const TempDir folder;
  const std::string program = folder.File("mpi_trainer");
  const std::string library = std::filesystem::absolute(kLibrary).parent_path();
  Process compiler({"/bin/sh", "-c",
                    absl::StrCat("mpicc -O2 -Wall -Werror -I worker_runtime/c_api examples/mpi/mpi_trainer.c -o ",
                                 program, " -L ", library, " -lddprun_c -Wl,-rpath,", library, " -lm")},
                   {{"OMPI_CC", "gcc"}});
  ASSERT_EQ(compiler.Wait(), 0) << compiler.Err();
  Process job({"/bin/sh", "-c", absl::StrCat("exec mpirun --oversubscribe -n 2 ", program, " 3 8 10")},
              {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}, {"OMP_NUM_THREADS", "1"}});
  EXPECT_EQ(job.Wait(), 0) << job.Err();
  EXPECT_THAT(job.Out(), HasSubstr("2 ranks, 6 parameters of 64 and 8 elements: step ")) << job.Err();
  EXPECT_THAT(job.Out(), HasSubstr("; learned\n"));
}

}  // namespace
}  // namespace ddprun::testing

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "launcher/report/error_file_format.h"
#include "tests/worker_runtime/testing/rank_processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kProgram[] = "tests/worker_runtime/testing/rank_program";

TEST(RunWorker, RunWorker_NoLauncher_RunsAlone) {
  Process alone({kProgram, "ok"});
  EXPECT_EQ(alone.Wait(), 0);
  EXPECT_EQ(alone.Out(), "rank 0 ready\n");
  EXPECT_EQ(alone.Err(), "");
}

TEST(RunWorker, RunWorker_Success_ExitsWith0) {
  RankProcesses ranks(3, "ok");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks[rank].Wait(), 0);
    EXPECT_EQ(ranks[rank].Err(), "");
  }
}

TEST(RunWorker, RunWorker_Options_SetsDeviceSeedAndThreads) {
  for (const char* device : {"cpu", "auto"}) {
    Process alone({kProgram, "settings", "30", device}, {{"CUDA_VISIBLE_DEVICES", "-1"}, {"OMP_NUM_THREADS", "3"}});
    EXPECT_EQ(alone.Wait(), 0);
    EXPECT_EQ(alone.Out(), "rank 0 ready\ndevice cpu, 3 threads, seed 7\n");
    EXPECT_EQ(alone.Err(), "");
  }
}

TEST(RunWorker, RunWorker_DeviceDoesNotExist_ErrorIsOneLine) {
  for (const auto& [device, why] :
       std::map<std::string, std::string>{{"tpu", "device \"tpu\": must be auto, cpu, cuda, or one GPU as in cuda:1"},
                                          {"cuda", "nccl: this host has no usable NVIDIA GPU"}}) {
    Process alone({kProgram, "ok", "30", device}, {{"CUDA_VISIBLE_DEVICES", "-1"}});
    EXPECT_EQ(alone.Wait(), 78) << "a restart finds none, either";
    EXPECT_THAT(alone.Err(), StartsWith("rank 0: " + why));
    Process later({kProgram, "ok", "30", device}, {{"CUDA_VISIBLE_DEVICES", "-1"},
                                                   {"RANK", "0"},
                                                   {"WORLD_SIZE", "1"},
                                                   {"LOCAL_RANK", "0"},
                                                   {"LOCAL_WORLD_SIZE", "1"},
                                                   {"TORCHELASTIC_RESTART_COUNT", "1"}});
    EXPECT_EQ(later.Wait(), 1) << "it was there at the first start: another node may have it";
  }
}

TEST(RunWorker, RunWorker_BadEnvironment_ExitsWith2AndWritesTheErrorFile) {
  TempDir folder;
  const std::string file = folder.File("error.json");
  Process worker({kProgram, "ok"}, {{"RANK", "7"}, {"WORLD_SIZE", "4"}, {"TORCHELASTIC_ERROR_FILE", file}});
  EXPECT_EQ(worker.Wait(), 2);
  EXPECT_EQ(worker.Err(), "rank 7: RANK=7: must be an integer from 0 to 3\n");
  EXPECT_EQ(launcher::ParseErrorFile(ReadFile(file)).message, "rank 7: RANK=7: must be an integer from 0 to 3");
}

TEST(RunWorker, RunWorker_WrongMasterAddress_ErrorIsOneLine) {
  const std::string port = std::to_string(FreePort());
  for (const auto& [host, why] : std::map<std::string, std::string>{
           {"127.0.0.1", "; check MASTER_ADDR and MASTER_PORT, and that rank 0 is running\n"},
           {"no.such.host.invalid", ": can't resolve no.such.host.invalid: "}}) {
    Process worker({kProgram, "ok", "1"},
                   {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", host}, {"MASTER_PORT", port}});
    EXPECT_EQ(worker.Wait(), 1);
    EXPECT_THAT(worker.Err(), StartsWith("rank 1: timed out after 1s connecting to the store at " + host + ":" + port));
    EXPECT_THAT(worker.Err(), HasSubstr(why));
    EXPECT_EQ(worker.Err().find('\n'), worker.Err().size() - 1);
  }
}

// A rank may be arbitrarily late, for example because it exports the model.
TEST(RunWorker, RunWorker_LateRanks_ShutdownWaitsUntilTheTimeout) {
  Process alone({kProgram, "shutdown", "3600"}, {{"TORCH_FR_BUFFER_SIZE", "100"}});
  EXPECT_EQ(alone.Wait(), 0);
  EXPECT_THAT(alone.Out(), HasSubstr("\"gloo:barrier\" 3600000\n"));
}

TEST(RunWorker, RunWorker_BodyFails_WritesTheErrorFile) {
  for (const auto& [behaviour, text] : std::map<std::string, std::string>{
           {"error", "rank 1: the data of rank 1 are bad"},
           {"throw", "rank 1: training: threw an exception that is not a std::exception"}}) {
    TempDir folder;
    RankProcesses ranks(2, behaviour, 30, {{"TORCHELASTIC_ERROR_FILE", folder.File("error")}});
    EXPECT_EQ(ranks[1].Wait(), 1);
    EXPECT_EQ(ranks[0].Wait(), 1);
    EXPECT_EQ(launcher::ParseErrorFile(ReadFile(folder.File("error.1"))).message, text);
    EXPECT_THAT(launcher::ParseErrorFile(ReadFile(folder.File("error.0"))).message, HasSubstr("aborted the group"));
  }
}

// The signal reaches one rank; all ranks stop in the same step, with the same deadline.
TEST(StopRequested, StopRequested_SignalToOneRank_StopsAll) {
  RankProcesses ranks(3, "stop", 30, {{"DDPRUN_STOP_GRACE", "300"}});
  ASSERT_TRUE(ranks.Ready());
  ranks[1].Signal(SIGTERM);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks[rank].Wait(), 0) << ranks[rank].Err();
    EXPECT_THAT(ranks[rank].Out(), HasSubstr("stops, at most 300 s left"));
  }
}

TEST(RunWorker, RunWorker_TerminateInAnotherThread_WritesTheErrorFile) {
  TempDir folder;
  RankProcesses ranks(2, "shapes", 30, {{"TORCHELASTIC_ERROR_FILE", folder.File("error")}});
  std::string messages;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_NE(ranks[rank].Wait(), 0);
    messages += launcher::ParseErrorFile(ReadFile(folder.File("error." + std::to_string(rank)))).message;
  }
  EXPECT_THAT(messages, HasSubstr("Is there a distributed collective mismatch"));
}

TEST(RunWorker, RunWorker_ReaderOfItsOutputExits_Continues) {
  Process shell({"/bin/sh", "-c", "(" + std::string(kProgram) + " many_lines; echo ended with $? >&2) | head -1"});
  EXPECT_EQ(shell.Wait(), 0);
  EXPECT_EQ(shell.Err(), "ended with 0\n");
}

}  // namespace
}  // namespace ddprun::testing

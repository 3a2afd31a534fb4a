// The C++ examples as programs: under the real launcher, by Spawn, killed and resumed, and beside their Python twin.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

std::string Path(const std::string& example) { return "examples/cpp/" + example; }

std::vector<std::string> Joined(std::vector<std::string> front, const std::vector<std::string>& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

// A launcher's flags, with the example and its arguments.
std::vector<std::string> Flags(int workers, const std::string& example,
                               const std::vector<std::string>& arguments = {}) {
  return Joined({"--standalone", absl::StrCat("--nproc-per-node=", workers), "--no-python", Path(example)}, arguments);
}

// Returns the text after `start` in each line that has it.
std::vector<std::string> After(const std::string& out, const std::string& start) {
  std::vector<std::string> found;
  for (absl::string_view line : absl::StrSplit(out, '\n')) {
    const size_t at = line.find(start);
    if (at != absl::string_view::npos) found.emplace_back(line.substr(at + start.size()));
  }
  return found;
}

void ExpectEqualParameters(const std::string& out, size_t ranks) {
  const std::vector<std::string> sums = After(out, "the parameters' sum is ");
  EXPECT_EQ(sums.size(), ranks) << out;
  EXPECT_EQ(std::set<std::string>(sums.begin(), sums.end()).size(), 1) << out;
}

TEST(BasicDdpTest, Train_UnderLauncher_ParametersAreEqual) {
  Finished launcher(0, Flags(2, "basic_ddp"));
  ExpectEqualParameters(launcher.Out(), 2);
  EXPECT_EQ(Count(launcher.Out(), "step 3  rank "), 2) << launcher.Out();
}

TEST(BasicDdpTest, Train_BySpawn_ParametersAreEqual) {
  Process program({Path("basic_ddp"), "--spawn=2", "--steps=1"});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  ExpectEqualParameters(program.Out(), 2);
}

TEST(ExamplesTest, Flags_Invalid_OneLineAndExit2) {
  const auto expect = [](std::vector<std::string> argv, const std::string& text) {
    Process program(argv);
    EXPECT_EQ(program.Wait(), 2);
    EXPECT_EQ(Lines(program.Err()), 1) << program.Err();
    EXPECT_TRUE(absl::StrContains(program.Err(), text)) << program.Err();
    EXPECT_EQ(program.Out(), "");
  };
  expect({Path("basic_ddp"), "--steps=0"}, "basic_ddp: --steps: it is 0, but must be 1 or more");
  expect({Path("basic_ddp"), "--backend=mpi"}, "--backend is mpi, but must be auto, gloo or nccl");
  expect({Path("checkpoint_ddp")}, "--folder is required");
  expect({Path("train_gpt"), "--n-embd=10"}, "n_embd is 10, which is not a multiple of n_head 4");
  expect({Path("train_gpt"), "--optimizer=sgd"}, "--optimizer is sgd, but must be fused, foreach or loop");
}

TEST(ExamplesTest, Flags_Help_ExitsWithZero) {
  Process program({Path("train_gpt"), "--help"});
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_TRUE(absl::StrContains(program.Out(), "--snapshot")) << program.Out();
}

TEST(SkewedRanksTest, Timeout_LongerThanDelay_OthersWait) {
  Finished launcher(0, Flags(2, "skewed_ranks", {"--slow-rank=1", "--delay=0.05", "--timeout=100"}));
  EXPECT_EQ(Count(launcher.Out(), "rank 1 was late"), 2) << launcher.Out();
  EXPECT_EQ(Count(launcher.Out(), "rank 0 had its step, with waiting"), 2) << launcher.Out();
}

TEST(SkewedRanksTest, Timeout_ShorterThanDelay_ErrorNamesSlowRank) {
  Finished launcher(1, Flags(3, "skewed_ranks", {"--slow-rank=1", "--delay=1000", "--timeout=8"}));
  EXPECT_TRUE(absl::StrContains(launcher.Err(), "rank 1")) << launcher.Err();
  EXPECT_FALSE(absl::StrContains(launcher.Out(), "had its step")) << launcher.Out();
}

TEST(CheckpointDdpTest, Resume_SavedByRankZero_AllRanksLoad) {
  TempDir dir;
  Finished launcher(0, Flags(2, "checkpoint_ddp", {"--folder=" + dir.File("checkpoints")}));
  EXPECT_EQ(Count(launcher.Out(), "rank 0 has saved step 1"), 1) << launcher.Out();
  for (const char* rank : {"0", "1"}) {
    EXPECT_TRUE(absl::StrContains(launcher.Out(),
                                  absl::StrCat("rank ", rank, " has loaded step 1 onto cpu: the same parameters")))
        << launcher.Out();
  }
}

TEST(ModelParallelTest, Train_TwoDevices_Works) {
  Process program({Path("model_parallel"), "--spawn=2"});
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  EXPECT_EQ(Count(program.Out(), " on cpu and cpu"), 4) << program.Out();
}

TEST(ElasticToyTest, Train_TwoNodes_EveryWorkerMakesItsStep) {
  const std::vector<std::string> flags = {
      "--nnodes=2",    "--nproc_per_node=2", absl::StrCat("--rdzv_endpoint=127.0.0.1:", FreePort()),
      "--rdzv_id=100", "--no-python",        Path("elastic_toy")};
  Launcher a(flags), b(flags);
  EXPECT_EQ(a.Wait(), 0) << a.Err();
  EXPECT_EQ(b.Wait(), 0) << b.Err();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(Count(a.Out() + b.Out(), absl::StrCat("rank ", rank, " made its step")), 1) << a.Out() << b.Out();
  }
}

// train_gpt: it has the same losses killed and resumed, started by Spawn, and as its Python twin.

constexpr char kProgram[] = "examples/cpp/train_gpt";

// A model with very fast steps.
std::vector<std::string> Small(int steps, const std::vector<std::string>& more = {}) {
  return Joined({absl::StrCat("--steps=", steps), "--batch-size=2", "--block-size=16", "--n-layer=1", "--n-head=2",
                 "--n-embd=16", "--log-every=1", "--sample=40"},
                more);
}

// Printed losses by step, without the speed; the last attempt of a step counts.
std::map<int, std::string> Losses(const std::string& out) {
  std::map<int, std::string> losses;
  for (absl::string_view line : absl::StrSplit(out, '\n')) {
    int step = 0;
    const size_t slash = line.find('/');
    if (!absl::StartsWith(line, "step ") || slash == absl::string_view::npos ||
        !absl::SimpleAtoi(line.substr(5, slash - 5), &step)) {
      continue;
    }
    losses[step] = std::string(line.substr(0, line.find(" (")));
  }
  return losses;
}

pid_t PidOfRank(const std::string& out, int rank) {
  const std::string start = absl::StrCat("rank ", rank, " of 2: pid ");
  pid_t pid = -1;
  const size_t at = out.find(start);
  if (at == std::string::npos) return -1;
  const std::string rest = out.substr(at + start.size());
  return absl::SimpleAtoi(rest.substr(0, rest.find(' ')), &pid) ? pid : -1;
}

TEST(TrainGptTest, Train_WorkerKilled_LossesAreEqual) {
  TempDir dir;
  constexpr int kSteps = 300;
  Launcher whole(Flags(2, "train_gpt", Small(kSteps, {"--dropout=0.1"})));
  Launcher killed(Joined({"--max-restarts=1"},
                         Flags(2, "train_gpt",
                               Small(kSteps, {"--dropout=0.1", "--snapshot-every=20", "--snapshot=" + dir.File("gpt"),
                                              "--tensorboard=" + dir.File("events")}))));
  ASSERT_TRUE(killed.WaitForOut("snapshot of step 40 saved")) << killed.Err();
  ASSERT_EQ(kill(PidOfRank(killed.Out(), 1), SIGKILL), 0);

  EXPECT_EQ(killed.Wait(), 0) << killed.Err();
  EXPECT_TRUE(absl::StrContains(killed.Out(), "restarts so far 1")) << killed.Out();
  EXPECT_TRUE(absl::StrContains(killed.Out(), "resumed from the snapshot: step ")) << killed.Out();
  EXPECT_TRUE(absl::StrContains(killed.Out(), "--- sample of generated text ---")) << killed.Out();
  EXPECT_EQ(whole.Wait(), 0) << whole.Err();
  const std::map<int, std::string> losses = Losses(whole.Out());
  EXPECT_EQ(losses.size(), kSteps);
  EXPECT_EQ(Losses(killed.Out()), losses);
  // One per attempt.
  int event_files = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir.File("events"))) {
    event_files += file.path().filename().string().find("events.out.tfevents.") == 0;
  }
  EXPECT_EQ(event_files, 2);
}

void WriteText(const std::string& path, const std::string& word) {
  FILE* const file = fopen(path.c_str(), "w");
  for (int i = 0; i < 100; ++i) fputs(word.c_str(), file);
  fclose(file);
}

TEST(TrainGptTest, Resume_SnapshotOfAnotherTextOrModel_IsRefused) {
  TempDir dir;
  WriteText(dir.File("text"), "abcdefgh");
  WriteText(dir.File("other"), "ijklmnop");
  const std::vector<std::string> flags = Small(2, {"--spawn=1", "--snapshot=" + dir.File("gpt")});
  const std::string text = "--text=" + dir.File("text");
  Process first(Joined(Joined({kProgram}, flags), {text}));
  ASSERT_EQ(first.Wait(), 0) << first.Err();
  Process model(Joined(Joined({kProgram}, flags), {text, "--n-layer=2"}));
  EXPECT_EQ(model.Wait(), 1);
  EXPECT_TRUE(absl::StrContains(model.Err(), "transformer.h.1.")) << model.Err();
  Process other(Joined(Joined({kProgram}, flags), {"--text=" + dir.File("other")}));
  EXPECT_EQ(other.Wait(), 1);
  EXPECT_TRUE(absl::StrContains(other.Err(), "is of another text: remove the folder, or give its text with --text"))
      << other.Err();
}

TEST(TrainGptTest, Train_TextMissing_OneErrorLine) {
  Process program({kProgram, "--spawn=2", "--text=/no/such/file"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_TRUE(
      absl::StrContains(program.Err(), "there is no text at /no/such/file: give a file or a folder with --text"))
      << program.Err();
}

TEST(TrainGptTest, Train_PythonTwin_LossesAreEqual) {
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  const std::vector<std::string> flags = Small(12, {"--n-layer=2", "--dropout=0.1"});
  Launcher python(Joined({"--standalone", "--nproc-per-node=2", "examples/python/train_gpt.py"}, flags),
                  {{"PYTHON_EXEC", VenvPython()}, {"OMP_NUM_THREADS", "1"}});
  // The default of Python's AdamW on CPUs.
  Process cpp(Joined({kProgram, "--spawn=2", "--optimizer=loop"}, flags));
  EXPECT_EQ(cpp.Wait(), 0) << cpp.Err();
  EXPECT_EQ(python.Wait(), 0) << python.Err();
  const std::map<int, std::string> losses = Losses(cpp.Out());
  EXPECT_EQ(losses.size(), 12);
  EXPECT_EQ(Losses(python.Out()), losses);
}

}  // namespace
}  // namespace ddprun::testing

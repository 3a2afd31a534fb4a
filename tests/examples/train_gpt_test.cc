// The C++ GPT has the same losses killed and resumed, started by Spawn, and as its Python twin.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

constexpr char kProgram[] = "examples/cpp/train_gpt";

// A model with very fast steps.
std::vector<std::string> Small(int steps, std::vector<std::string> more = {}) {
  std::vector<std::string> flags = {absl::StrCat("--steps=", steps),
                                    "--batch-size=2",
                                    "--block-size=16",
                                    "--n-layer=1",
                                    "--n-head=2",
                                    "--n-embd=16",
                                    "--log-every=1",
                                    "--sample=40"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::vector<std::string> Command(std::vector<std::string> front, const std::vector<std::string>& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
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

TEST(TrainGptTest, KilledWorker_TheLossesGoOnAsIfNothingHadHappened) {
  TempDir dir;
  constexpr int kSteps = 300;
  const std::vector<std::string> launch = {"--standalone", "--nproc-per-node=2", "--no-python"};
  Launcher whole(Command(launch, Command({kProgram}, Small(kSteps, {"--dropout=0.1"}))));

  Launcher killed(Command(
      {"--max-restarts=1"},
      Command(launch, Command({kProgram},
                              Small(kSteps, {"--dropout=0.1", "--snapshot-every=20", "--snapshot=" + dir.File("gpt"),
                                             "--tensorboard=" + dir.File("events")})))));
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

TEST(TrainGptTest, SnapshotOfAnotherTextOrModel_IsRefused) {
  TempDir dir;
  WriteText(dir.File("text"), "abcdefgh");
  WriteText(dir.File("other"), "ijklmnop");
  const std::vector<std::string> flags = Small(2, {"--spawn=1", "--snapshot=" + dir.File("gpt")});
  const std::string text = "--text=" + dir.File("text");
  Process first(Command(Command({kProgram}, flags), {text}));
  ASSERT_EQ(first.Wait(), 0) << first.Err();
  Process model(Command(Command({kProgram}, flags), {text, "--n-layer=2"}));
  EXPECT_EQ(model.Wait(), 1);
  EXPECT_TRUE(absl::StrContains(model.Err(), "transformer.h.1.")) << model.Err();
  Process other(Command(Command({kProgram}, flags), {"--text=" + dir.File("other")}));
  EXPECT_EQ(other.Wait(), 1);
  EXPECT_TRUE(absl::StrContains(other.Err(), "is of another text: remove the folder, or give its text with --text"))
      << other.Err();
}

TEST(TrainGptTest, TextThatIsNotThere_IsOneClearError) {
  Process program({kProgram, "--spawn=2", "--text=/no/such/file"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_TRUE(
      absl::StrContains(program.Err(), "there is no text at /no/such/file: give a file or a folder with --text"))
      << program.Err();
}

TEST(TrainGptTest, Python_HasTheSameLosses) {
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  const std::vector<std::string> flags = Small(12, {"--n-layer=2", "--dropout=0.1"});
  Launcher python(Command({"--standalone", "--nproc-per-node=2", "examples/python/train_gpt.py"}, flags),
                  {{"PYTHON_EXEC", VenvPython()}, {"OMP_NUM_THREADS", "1"}});
  // The default of Python's AdamW on CPUs.
  Process cpp(Command({kProgram, "--spawn=2", "--optimizer=loop"}, flags));
  EXPECT_EQ(cpp.Wait(), 0) << cpp.Err();
  EXPECT_EQ(python.Wait(), 0) << python.Err();
  const std::map<int, std::string> losses = Losses(cpp.Out());
  EXPECT_EQ(losses.size(), 12);
  EXPECT_EQ(Losses(python.Out()), losses);
}

}  // namespace
}  // namespace ddprun::testing

// examples/python/report_progress.py and elastic_reform.py
#include <signal.h>

#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Ne;
using ::testing::SizeIs;

class PythonExampleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "there is no .venv";
  }

  // Runs in a separate folder, into which it saves.
  std::string Command(const std::string& program, int steps) const {
    return absl::StrCat("cd ", dir_.path(), " && exec ", std::filesystem::absolute("launcher/ddprun").string(),
                        " --standalone --nproc-per-node=2 --max-restarts=3 ",
                        std::filesystem::absolute("examples/python/" + program).string(), " ", steps);
  }
  std::map<std::string, std::string> Environment() const {
    return {{"PYTHON_EXEC", VenvPython()}, {"PYTHONPATH", std::filesystem::absolute("packaging/wheel")}};
  }

  const TempDir dir_;
};

TEST_F(PythonExampleTest, Stopped_SavesFirst) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Process launcher({"/bin/sh", "-c", Command("report_progress.py", 1000000000)}, Environment());
    ASSERT_TRUE(launcher.WaitForOut("rank 0 trains\n")) << launcher.Err();
    launcher.Signal(signal);
    EXPECT_EQ(launcher.Wait(), 128 + signal) << launcher.Err();
    EXPECT_THAT(launcher.Out(), HasSubstr("saved before step "));
    EXPECT_TRUE(std::filesystem::remove(dir_.File("snapshot.pt")));
  }
}

// Output of elastic_reform.py: for each rank the losses by step, and its processes in order.
struct Printed {
  explicit Printed(const std::string& out) {
    static const std::regex kLine("rank (\\d) pid (\\d+) step (\\d+) loss (\\S+)\n");
    for (std::sregex_iterator it(out.begin(), out.end(), kLine), end; it != end; ++it) {
      const int rank = std::stoi((*it)[1]), step = std::stoi((*it)[3]);
      const auto [at, fresh] = losses[rank].emplace(step, (*it)[4]);
      if (!fresh) repeated.emplace_back(rank, step);
      const pid_t pid = std::stoi((*it)[2]);
      if (pids[rank].empty() || pids[rank].back() != pid) pids[rank].push_back(pid);
    }
  }
  std::map<int, std::map<int, std::string>> losses;
  std::vector<std::pair<int, int>> repeated;
  std::map<int, std::vector<pid_t>> pids;
};

TEST_F(PythonExampleTest, ElasticReform_OneIsKilled_TheOtherKeepsItsProcessAndTheLossesAreTheSame) {
  constexpr int kSteps = 300;
  Process undisturbed({"/bin/sh", "-c", Command("elastic_reform.py", kSteps)}, Environment());
  EXPECT_EQ(undisturbed.Wait(), 0) << undisturbed.Err();
  Process launcher({"/bin/sh", "-c", Command("elastic_reform.py", kSteps)}, Environment());
  ASSERT_TRUE(launcher.WaitForOut(" step 20 loss")) << launcher.Err();
  const pid_t victim = Printed(launcher.Out()).pids[1].back();
  kill(victim, SIGKILL);
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();

  const Printed expected(undisturbed.Out()), run(launcher.Out());
  EXPECT_EQ(expected.losses.at(0).size(), kSteps);
  EXPECT_EQ(run.losses.at(0), expected.losses.at(0));
  // The victim may have died between a step and its line.
  EXPECT_GE(run.losses.at(1).size(), kSteps - 1);
  for (const auto& [step, loss] : run.losses.at(1)) EXPECT_EQ(loss, expected.losses.at(1).at(step)) << step;
  EXPECT_THAT(run.pids.at(0), SizeIs(1)) << "the survivor's process";
  EXPECT_THAT(run.pids.at(1), ElementsAre(victim, Ne(victim)));
  for (const auto& [rank, step] : run.repeated) {
    EXPECT_EQ(rank, 1) << "step " << step << ": the survivor makes no step twice; the victim may have been one ahead";
  }
}

}  // namespace
}  // namespace ddprun::testing

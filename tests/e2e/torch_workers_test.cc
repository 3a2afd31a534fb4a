// Workers with PyTorch, which run in .venv (scripts/setup makes it): process groups, failures of PyTorch's own parts,
// the Python examples, and PyTorch's functions within ddprun exec.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

// Unmodified torch.distributed scripts: init_process_group("gloo") against the launcher's store, in every attempt.

class GlooTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  }
  static std::map<std::string, std::string> Environment() { return {{"PYTHON_EXEC", VenvPython()}}; }
  static std::vector<std::string> Flags(std::vector<std::string> flags, std::vector<std::string> arguments) {
    flags.push_back("tests/e2e/gloo_worker.py");
    flags.insert(flags.end(), arguments.begin(), arguments.end());
    return flags;
  }
};

TEST_F(GlooTest, AllReduce_OneNodeRestarts_Works) {
  Finished launcher(0,
                    Flags({"--standalone", "--nproc-per-node=3", "--max-restarts=3"},
                          {"--die=1:0:kill", "--die=0:1:kill", "--die=2:2:5"}),
                    Environment());
  for (int attempt = 0; attempt < 4; ++attempt) {
    EXPECT_EQ(Count(launcher.Out(), absl::StrCat("attempt=", attempt, " ")), 3) << launcher.Out() << launcher.Err();
  }
}

TEST_F(GlooTest, AllReduce_RankZeroOfTwoNodesDies_WorksAfterRestart) {
  const std::vector<std::string> flags = Flags(
      {"--nnodes=2", "--nproc-per-node=2", absl::StrCat("--rdzv-endpoint=127.0.0.1:", FreePort()), "--max-restarts=1"},
      {"--die=0:0:kill"});
  Launcher a(flags, Environment()), b(flags, Environment());
  ExpectEnd({&a, &b});
  EXPECT_EQ(Count(a.Out() + b.Out(), "attempt=1"), 4) << a.Out() << b.Out();
}

TEST_F(GlooTest, InitProcessGroup_RankMissing_NamesItsHost) {
  TempDir dir;
  const std::vector<std::string> flags =
      Flags({"--nnodes=2", "--nproc-per-node=2", absl::StrCat("--rdzv-endpoint=127.0.0.1:", FreePort())},
            {"--late=3:" + dir.File("go")});
  std::vector<std::string> first = flags, second = flags;
  first.insert(first.begin(), "--node-rank=0");
  second.insert(second.begin(), "--node-rank=1");
  Launcher a(first, Environment()), b(second, Environment());
  EXPECT_TRUE(a.WaitForErr("rank 3 on ")) << a.Err();
  EXPECT_THAT(a.Err(), HasSubstr("has not joined"));
  Touch(dir.File("go"));
  ExpectEnd({&a, &b});
  EXPECT_THAT(b.Err(), Not(HasSubstr("has not joined"))) << "only the store's host says it";
}

TEST_F(GlooTest, Summary_ExceptionInOneRank_HasTypeMessageAndTraceback) {
  Finished launcher(1, Flags({"--standalone", "--nproc-per-node=2"}, {"--die=1:0:raise"}), Environment());
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("RuntimeError: the weights are not finite"), HasSubstr("Traceback")));
}

// Failures of PyTorch's own parts: on two nodes, the summary of each names rank and cause.

// Rank 1 runs `script`, while rank 0 waits.
struct TorchCause {
  const char* name;
  const char* script;
  std::vector<const char*> expected;
};
void PrintTo(const TorchCause& cause, std::ostream* out) { *out << cause.name; }

const TorchCause kTorchCauses[] = {
    {"ExceptionInADataLoader",
     "from torch.utils.data import DataLoader\n"
     "class Samples(list):\n"
     "  def __getitem__(self, i): raise ValueError(f'sample {i} is damaged')\n"
     "next(iter(DataLoader(Samples([1]), num_workers=1)))\n",
     {"message   : ValueError: Caught ValueError in DataLoader worker process 0.\n"
      "              ValueError: sample 0 is damaged\n",
      "in __getitem__"}},
    {"DataLoaderKilled",
     "from torch.utils.data import DataLoader\n"
     "class Samples(list):\n"
     "  def __getitem__(self, i): os.kill(os.getpid(), signal.SIGKILL)\n"
     "next(iter(DataLoader(Samples([1]), num_workers=1)))\n",
     {"message   : RuntimeError: DataLoader worker (pid", "is killed by signal:"}},
    {"PortInUse",
     "import socket\n"
     "from torch.distributed import TCPStore\n"
     "taken = socket.create_server(('127.0.0.1', 0))\n"
     "TCPStore('127.0.0.1', taken.getsockname()[1], 2, True, wait_for_workers=False)\n",
     {"EADDRINUSE"}},
    {"MismatchedWorld",
     "import datetime\n"
     "from torch.distributed import init_process_group\n"
     "init_process_group('gloo', 'env://', datetime.timedelta(seconds=2), world_size=3, rank=1)\n",
     {"message   : DistStoreError: "}},
};

class TorchCausesTest : public ::testing::TestWithParam<TorchCause> {};

TEST_P(TorchCausesTest, Summary_EveryNode_NamesRankAndCause) {
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  const TempDir dir;
  std::ofstream(dir.File("train.py")) << "import os, signal\nif os.environ['RANK'] == '0': signal.pause()\n"
                                      << GetParam().script;
  const std::vector<std::string> flags = {"--nnodes=2", absl::StrCat("--rdzv-endpoint=127.0.0.1:", FreePort()),
                                          "--shutdown-timeout=1", dir.File("train.py")};
  const std::map<std::string, std::string> environment = {{"PYTHON_EXEC", VenvPython()}};
  Launcher a(flags, environment), b(flags, environment);
  ExpectEnd({&a, &b}, 1);
  for (Launcher* node : {&a, &b}) {
    EXPECT_THAT(node->Err(), HasSubstr("rank      : 1 (local_rank: 0)"));
    for (const char* text : GetParam().expected) EXPECT_THAT(node->Err(), HasSubstr(text));
  }
}

INSTANTIATE_TEST_SUITE_P(All, TorchCausesTest, ::testing::ValuesIn(kTorchCauses),
                         [](const auto& info) { return std::string(info.param.name); });

// examples/python/report_progress.py.

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

TEST_F(PythonExampleTest, ReportProgress_Stopped_SavesFirst) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Process launcher({"/bin/sh", "-c", Command("report_progress.py", 1000000000)}, Environment());
    ASSERT_TRUE(launcher.WaitForOut("rank 0 trains\n")) << launcher.Err();
    launcher.Signal(signal);
    EXPECT_EQ(launcher.Wait(), 128 + signal) << launcher.Err();
    EXPECT_THAT(launcher.Out(), HasSubstr("saved before step "));
    EXPECT_TRUE(std::filesystem::remove(dir_.File("snapshot.pt")));
  }
}

TEST(InPlaceTorchTest, Exec_EveryTorchFunction_HasPyTorchsResultsAndErrors) {
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  Process calls({VenvPython(), "tests/e2e/in_place_torch.py", std::filesystem::absolute("launcher/ddprun")});
  EXPECT_EQ(calls.Wait(6 * Process::kPatience), 0) << calls.Out() << calls.Err();
  EXPECT_THAT(calls.Out(), AllOf(HasSubstr("exit 1 1 7 True"), HasSubstr("kill 1 1 -9 True"), HasSubstr("signal 15")));
}

}  // namespace
}  // namespace ddprun::testing

// Failures of PyTorch's own parts: on two nodes, the summary of each names rank and cause.
#include <fstream>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

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

TEST_P(TorchCausesTest, EveryNodesSummary_NamesRankAndCause) {
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

}  // namespace
}  // namespace ddprun::testing

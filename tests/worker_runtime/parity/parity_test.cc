// Trains in C++ and in Python, with real processes over Gloo: losses and parameters must have the same bits in every
// step and on every rank. runs.txt lists the trainings.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/testing/process.h"
#include "tests/worker_runtime/parity/settings.h"

namespace ddprun::testing {
namespace {

constexpr char kRuns[] = "tests/worker_runtime/parity/runs.txt";
constexpr int kMaxRanks = 4;

// Output of one language: lines of all ranks, by name of the run and number of ranks.
using Record = std::map<std::pair<std::string, int>, std::string>;

Record ReadRecord(const std::string& prefix) {
  Record record;
  for (int size = 1; size <= kMaxRanks; ++size) {
    for (int rank = 0; rank < size; ++rank) {
      std::istringstream lines(ReadFile(prefix + "." + std::to_string(size) + "." + std::to_string(rank)));
      for (std::string line; std::getline(lines, line);) {
        const std::string name = line.substr(0, line.find(' '));
        record[{name, size}] += "rank " + std::to_string(rank) + line.substr(name.size()) + "\n";
      }
    }
  }
  return record;
}

void TrainInCpp(const std::string& prefix) {
  for (int size = 1; size <= kMaxRanks; ++size) {
    const std::string port = std::to_string(FreePort());
    std::vector<std::unique_ptr<Process>> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(std::make_unique<Process>(
          std::vector<std::string>{"tests/worker_runtime/parity/parity_worker", kRuns, prefix},
          std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                             {"WORLD_SIZE", std::to_string(size)},
                                             {"LOCAL_RANK", std::to_string(rank)},
                                             {"LOCAL_WORLD_SIZE", std::to_string(size)},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", port},
                                             {"OMP_NUM_THREADS", "1"}}));
    }
    for (const auto& rank : ranks) ASSERT_EQ(rank->Wait(), 0) << rank->Err();
  }
}

TEST(ParityTest, Training_CppAndPython_HaveTheSameBits) {
  if (VenvPython().empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  TempDir dir;
  std::vector<std::string> command = {VenvPython(), "tests/worker_runtime/parity/twin.py", kRuns, dir.File("python")};
  for (int size = 1; size <= kMaxRanks; ++size) command.push_back(std::to_string(FreePort()));
  Process python(command, {{"OMP_NUM_THREADS", "1"}, {"PYTHONPATH", "examples/python"}});
  TrainInCpp(dir.File("cpp"));
  ASSERT_EQ(python.Wait(), 0) << python.Err();

  const Record cpp = ReadRecord(dir.File("cpp"));
  const Record twin = ReadRecord(dir.File("python"));
  int compared = 0;
  for (const Settings& settings : ReadSettings(kRuns)) {
    for (int size = 1; size <= kMaxRanks; ++size) {
      if (!settings.RunsWith(size)) continue;
      ++compared;
      const std::pair<std::string, int> key(settings.name(), size);
      ASSERT_TRUE(cpp.contains(key) && twin.contains(key)) << settings.name() << " with " << size << " ranks";
      if (settings.Text("expect", "") == "differs") {
        EXPECT_NE(cpp.at(key), twin.at(key)) << settings.name() << ": no exception any more";
      } else {
        EXPECT_EQ(cpp.at(key), twin.at(key)) << settings.name() << " with " << size << " ranks";
      }
    }
  }
  EXPECT_GT(compared, 0);
  RecordProperty("compared", compared);
}

}  // namespace
}  // namespace ddprun::testing

// A save may stop at any point for any reason: the newest valid checkpoint is intact, and not older than the last one
// that was reported as saved.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/testing/process.h"
#include "tests/worker_runtime/checkpoint/forgetful_files.h"
#include "tests/worker_runtime/checkpoint/hooked_files.h"
#include "tests/worker_runtime/checkpoint/sample_checkpoint.h"
#include "worker_runtime/checkpoint/checkpoint_folder.h"

namespace ddprun::testing {
namespace {

constexpr int kKilled = 77;

// Saves in a process that exits right before its `stop`th operation on the folder. Returns false if it made fewer.
bool SaveAndStopAt(int stop, const std::string& path, int64_t step, int keep) {
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    HookedFiles files([&count, stop](const std::string&, const std::string&) {
      if (++count == stop) ::_exit(kKilled);
      return absl::OkStatus();
    });
    CheckpointFolder folder(path, files);
    ::_exit(SaveSample(folder, step, keep).ok() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_NE(WEXITSTATUS(status), 1);
  return WEXITSTATUS(status) == kKilled;
}

void ExpectNoLeftOvers(const std::string& folder, size_t files) {
  const std::vector<std::string> names = NamesIn(folder);
  EXPECT_EQ(names.size(), files);
  for (const std::string& name : names) EXPECT_FALSE(absl::EndsWith(name, ".tmp")) << name;
}

TEST(Crash, Save_KilledAtAnyOperation_PreviousOrNewCheckpointIsIntact) {
  bool stopped = true;
  int stops = 0;
  for (int stop = 1; stopped; ++stop) {
    TempDir temp;
    CheckpointFolder folder(temp.path());
    ASSERT_TRUE(SaveSample(folder, 1, 2).ok());
    ASSERT_TRUE(SaveSample(folder, 2, 2).ok());
    stopped = SaveAndStopAt(stop, temp.path(), 3, 2);
    stops += stopped;
    const auto newest = NewestSample(folder);
    EXPECT_GE(*newest, 2) << "stopped before operation " << stop;
    EXPECT_TRUE(stopped || *newest == 3) << *newest;
    // The next save removes what a dead saver left.
    ASSERT_TRUE(SaveSample(folder, 4, 2).ok());
    EXPECT_EQ(NewestSample(folder).value(), 4);
    ExpectNoLeftOvers(temp.path(), 4);
  }
  // Per file: create, two writes of two halves, sync, rename, sync folder. Then two removals.
  EXPECT_GE(stops, 18);
}

TEST(Crash, Save_KilledWhileSavingAStepAgain_OneOfThemIsIntact) {
  bool stopped = true;
  for (int stop = 1; stopped; ++stop) {
    TempDir temp;
    CheckpointFolder folder(temp.path());
    ASSERT_TRUE(SaveSample(folder, 5, 1, 400).ok());
    stopped = SaveAndStopAt(stop, temp.path(), 5, 1);
    EXPECT_EQ(NewestSample(folder).value(), 5) << "stopped before operation " << stop;
    ASSERT_TRUE(SaveSample(folder, 5, 1).ok());
    ExpectNoLeftOvers(temp.path(), 2);
  }
}

void Materialise(const ForgetfulFiles::Disk& disk, const std::string& folder) {
  for (const std::string& name : NamesIn(folder)) ::unlink(absl::StrCat(folder, "/", name).c_str());
  for (const auto& [name, content] : disk) std::ofstream(absl::StrCat(folder, "/", name), std::ios::binary) << content;
}

struct Losses {
  int operations = 0;
  int disks = 0;
  int lost = 0;  // disks without the last reported checkpoint, or with one that is not whole
};

// Saves on a machine that may stop after every operation, and checks all contents that its disk may then have.
template <typename Files>
Losses SaveOn(int64_t saves) {
  TempDir temp, after_loss;
  const CheckpointFolder found(after_loss.path());
  int64_t reported = 0;
  Losses losses;
  ForgetfulFiles* machine = nullptr;
  Files files([&] {
    ++losses.operations;
    for (const ForgetfulFiles::Disk& disk : machine->PossibleDisks()) {
      ++losses.disks;
      Materialise(disk, after_loss.path());
      const auto newest = NewestSample(found);
      // Before the first save there are no guarantees.
      losses.lost += reported > 0 && (!newest.ok() || *newest < reported);
    }
  });
  machine = &files;
  CheckpointFolder folder(temp.path(), files);
  for (int64_t step = 1; step <= saves; ++step) {
    EXPECT_TRUE(SaveSample(folder, step, 2, 64).ok());
    reported = step;
  }
  return losses;
}

TEST(Crash, Save_PowerLossAfterAnyOperation_NoReportedCheckpointIsLost) {
  const Losses losses = SaveOn<ForgetfulFiles>(8);
  EXPECT_EQ(losses.lost, 0);
  EXPECT_GE(losses.operations, 96);
  EXPECT_GE(losses.disks, 300);
}

// Disks that ignore syncs: the test above would notice a missing sync.
class NoFileSync : public ForgetfulFiles {
 public:
  using ForgetfulFiles::ForgetfulFiles;
  absl::Status Sync(int, const std::string&) override { return absl::OkStatus(); }
};
class NoFolderSync : public ForgetfulFiles {
 public:
  using ForgetfulFiles::ForgetfulFiles;
  // Syncs every third time, to limit the number of choices.
  absl::Status SyncFolder(const std::string& folder) override {
    return ++calls_ % 3 == 0 ? ForgetfulFiles::SyncFolder(folder) : absl::OkStatus();
  }

 private:
  int calls_ = 0;
};

TEST(Crash, Save_PowerLossWithoutSync_LosesReportedCheckpoints) {
  EXPECT_GT(SaveOn<NoFileSync>(3).lost, 0);
  EXPECT_GT(SaveOn<NoFolderSync>(3).lost, 0);
}

// Step of the last complete line "saved STEP".
int64_t LastReported(const std::string& out) {
  int64_t last = 0, step = 0;
  for (const absl::string_view line : absl::StrSplit(out.substr(0, out.rfind('\n') + 1), '\n')) {
    if (absl::StartsWith(line, "saved ") && absl::SimpleAtoi(line.substr(6), &step)) last = step;
  }
  return last;
}

// 220 processes are killed with SIGKILL at random times; each continues from what the previous one left.
TEST(Crash, Save_KilledAtRandomTimes_NoReportedCheckpointIsLost) {
  constexpr size_t kBytes = 300000;
  TempDir temp;
  UnsyncedFiles files;
  CheckpointFolder folder(temp.path(), files);
  std::mt19937 random(4711);
  std::uniform_int_distribution<int> thousandths(0, 1000);
  int64_t reported = 0;
  int whole_saves = 0, with_left_overs = 0;
  for (int kill = 0; kill < 220; ++kill) {
    Process saver({"tests/worker_runtime/checkpoint/sample_saver", temp.path(), absl::StrCat(thousandths(random)),
                   absl::StrCat(kBytes)});
    ASSERT_EQ(saver.Wait(), 128 + SIGKILL) << saver.Err();
    const int64_t last = LastReported(saver.Out());
    ASSERT_GT(last, reported);
    whole_saves += last > reported + 1;
    reported = last;
    int left_overs = 0;
    for (const std::string& name : NamesIn(temp.path())) left_overs += absl::EndsWith(name, ".tmp");
    with_left_overs += left_overs > 0;
    const auto newest = NewestSample(folder);
    ASSERT_GE(*newest, reported) << "kill " << kill;
    reported = *newest;
  }
  // Otherwise the times were badly chosen and the test shows nothing. On a loaded machine few kills hit a write.
  EXPECT_GT(whole_saves, 0);
  EXPECT_GT(with_left_overs, 0);
  ASSERT_TRUE(SaveSample(folder, reported + 1, 2, kBytes).ok());
  ExpectNoLeftOvers(temp.path(), 4);
}

}  // namespace
}  // namespace ddprun::testing

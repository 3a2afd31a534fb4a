// Workers in C++ forked from their own program (--preload) behave like workers that are started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

constexpr char kProgram[] = "tests/launcher/fork_server/preload_worker";
constexpr char kForked[] = "reached RunWorker";

std::vector<std::string> Flags(const std::string& preload, std::vector<std::string> more,
                               const std::string& behaviour) {
  std::vector<std::string> flags = {"--standalone", "--rdzv-id=job", "--preload=" + preload};
  flags.insert(flags.end(), more.begin(), more.end());
  for (const std::string& word : {std::string(kProgram), behaviour, std::string("two words")}) flags.push_back(word);
  return flags;
}

const std::map<std::string, std::string> kEnvironment = {{"LOGLEVEL", "INFO"}};

std::string Sorted(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  std::sort(lines.begin(), lines.end());
  return absl::StrJoin(lines, "\n");
}

// The number after these words; 0 if there is none.
int NumberAfter(const std::string& text, const std::string& words) {
  const size_t at = text.find(words) + words.size();
  int number = 0;
  return absl::SimpleAtoi(text.substr(at, text.find(' ', at) - at), &number) ? number : 0;
}

void ExpectAlike(std::vector<std::string> flags, const std::string& behaviour, const std::string& in_summary) {
  SCOPED_TRACE(absl::StrCat(behaviour, " ", absl::StrJoin(flags, " ")));
  Launcher forked(Flags("auto", flags, behaviour), kEnvironment),
      started(Flags("none", flags, behaviour), kEnvironment);
  EXPECT_EQ(forked.Wait(), started.Wait()) << forked.Err();
  EXPECT_EQ(Count(forked.Err(), kForked), 1) << forked.Err();
  EXPECT_EQ(Count(started.Err(), kForked), 0);
  EXPECT_EQ(Sorted(forked.Out()), Sorted(started.Out()));
  EXPECT_EQ(Count(forked.Err(), "error before RunWorker\n"), Count(started.Err(), "error before RunWorker\n"));
  EXPECT_THAT(forked.Err(), HasSubstr(in_summary));
  EXPECT_THAT(started.Err(), HasSubstr(in_summary));
}

TEST(PreloadProgram, Preload_WorkersProcess_IsLikeStartedOne) {
  TempDir folder;
  ExpectAlike({"--nproc-per-node=2"}, "identity", "");
  ExpectAlike({"--nproc-per-node=1"}, "identity", "");
  ExpectAlike({"--nproc-per-node=2", "--redirects=3", "--log-dir", folder.File("logs")}, "identity", "");
  ExpectAlike({"--nproc-per-node=2", "--tee=3"}, "identity", "");
}

TEST(PreloadProgram, EndsOfWorkers_AreAlike) {
  ExpectAlike({"--nproc-per-node=2"}, "fail", "rank 0: the data are bad");
  ExpectAlike({"--nproc-per-node=2"}, "crash", "invalid memory access at address 0x10");
}

TEST(PreloadProgram, RandomGenerator_UsedInMain_IsReseeded) {
  Finished launcher(0, Flags("auto", {"--nproc-per-node=2"}, "random"), kEnvironment);
  EXPECT_EQ(Count(launcher.Err(), kForked), 1) << launcher.Err();
  std::set<std::string> numbers;
  for (const absl::string_view line : absl::StrSplit(launcher.Out(), '\n')) {
    if (absl::StrContains(line, "random ")) numbers.insert(std::string(line.substr(line.find("random "))));
  }
  EXPECT_EQ(numbers.size(), 2) << launcher.Out();
}

TEST(PreloadProgram, KilledWorker_TheNextRoundIsForkedFromTheSameServer) {
  Finished launcher(0, Flags("auto", {"--nproc-per-node=2", "--max-restarts=1"}, "restart"), kEnvironment);
  EXPECT_EQ(Count(launcher.Err(), kForked), 1) << launcher.Err();
  EXPECT_EQ(Count(launcher.Out(), "round 0 rank"), 2);
  EXPECT_EQ(Count(launcher.Out(), "round 1 rank"), 2);
}

TEST(PreloadProgram, KilledServer_WorkersContinue) {
  Launcher launcher(Flags("auto", {"--nproc-per-node=1", "--max-restarts=1"}, "wait"), kEnvironment);
  ASSERT_TRUE(launcher.WaitForOut("waits")) << launcher.Err();
  const int server = NumberAfter(launcher.Err(), "fork server ");
  ASSERT_GT(server, 1) << launcher.Err();
  kill(server, SIGKILL);
  ASSERT_TRUE(launcher.WaitForErr("the fork server died; each worker loads for itself")) << launcher.Err();
  const int worker = NumberAfter(launcher.Out(), "pid ");
  ASSERT_GT(worker, 1) << launcher.Out();
  EXPECT_TRUE(Alive(worker));
  kill(worker, SIGKILL);
  EXPECT_EQ(launcher.Wait(), 0) << launcher.Err();
  EXPECT_EQ(Count(launcher.Out(), " waits\n"), 2);
  EXPECT_EQ(Count(launcher.Out(), "printed before RunWorker\n"), 2);
}

TEST(PreloadProgram, ThreadBeforeRunWorker_StartsWorkersOneByOne) {
  Finished launcher(0, Flags("auto", {"--nproc-per-node=2"}, "thread"), kEnvironment);
  EXPECT_EQ(
      Count(launcher.Err(), "runs when RunWorker is called, and would be lost in a fork; each worker loads for itself"),
      1)
      << launcher.Err();
  EXPECT_EQ(Count(launcher.Out(), "printed before RunWorker"), 2);
}

TEST(PreloadProgram, WithoutRunWorker_StartsWorkersOneByOne) {
  Finished launcher(3, Flags("auto", {"--nproc-per-node=1"}, "no_worker"), kEnvironment);
  EXPECT_THAT(launcher.Err(), HasSubstr("the program ended before reaching RunWorker; each worker loads for itself"));
  EXPECT_EQ(launcher.Out(), "printed before RunWorker\n");
}

TEST(PreloadProgram, OtherPrograms_AreNotStartedWithoutARank) {
  TempDir folder;
  Finished launcher(0,
                    {"--standalone", "--preload", "--no-python", "sh", "-c", "echo $RANK >> " + folder.File("ranks")},
                    kEnvironment);
  EXPECT_EQ(ReadFile(folder.File("ranks")), "0\n");
  EXPECT_THAT(launcher.Err(), HasSubstr("is not a program that links ddprun's worker runtime"));
  EXPECT_THAT(launcher.Err(), Not(HasSubstr("WARNING")));
}

}  // namespace
}  // namespace ddprun::testing

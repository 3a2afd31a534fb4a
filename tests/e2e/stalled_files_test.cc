// The file system of --log-dir stalls while the launcher creates a round's log files: opening a FIFO for writing blocks
// until it has a reader.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

// A node with log files in this folder. Its first worker fails on command; the log file of the second one cannot be
// opened until EndStall().
class StalledFilesTest : public ::testing::Test {
 protected:
  ~StalledFilesTest() override { close(reader_); }

  std::vector<std::string> LogFlags() const { return {"--redirects=3", "--log-dir=" + logs_.path()}; }
  std::string WaitFor(const std::string& what) const {
    return absl::StrCat("while [ ! -e ", folder_.File(what), " ]; do sleep 0.02; done; ");
  }
  void Tell(const std::string& what) const { Touch(folder_.File(what)); }

  void StallNextRound() {
    const std::string folder = std::filesystem::directory_iterator(logs_.path())->path().string() + "/attempt_1/0/";
    std::filesystem::create_directories(folder);
    file_ = folder + "stdout.log";
    ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  }
  void EndStall() { reader_ = open(file_.c_str(), O_RDONLY | O_NONBLOCK); }
  std::string Log() const {
    char text[4096] = {};
    return read(reader_, text, sizeof text - 1) < 0 ? "" : text;
  }

  TempDir logs_, folder_;

 private:
  std::string file_;
  int reader_ = -1;
};

TEST_F(StalledFilesTest, NodeIsNotLost_ItsWorkersStartWhenTheFilesAreOpen) {
  const int port = FreePort();
  Rendezvousd server(port);
  const std::string first = absl::StrCat(kSayRank, "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then ");
  std::vector<std::string> flags = LogFlags();
  flags.push_back("--max-restarts=1");
  Launcher stalled(NodeFlags(port, "2", 1, flags, absl::StrCat(first, "exec sleep 1000; fi; ", WaitFor("end"))));
  Launcher other(NodeFlags(port, "2", 1, {"--max-restarts=1"},
                           absl::StrCat(first, WaitFor("fail"), "exit 5; fi; ",  // then longer than H
                                        "for i in $(seq 50); do sleep 0.1; done; echo ran for 5 s; ", WaitFor("end"))));
  ASSERT_TRUE(other.WaitForOut("attempt=0")) << other.Err();
  StallNextRound();
  Tell("fail");
  ASSERT_TRUE(other.WaitForOut("ran for 5 s")) << stalled.Err() << other.Err();
  EndStall();
  Tell("end");
  ExpectEnd({&stalled, &other});
  EXPECT_EQ(Count(other.Out(), "attempt="), 2) << other.Out() << other.Err();
  EXPECT_THAT(Log(), HasSubstr("attempt=1"));
}

TEST_F(StalledFilesTest, LauncherCanBeStopped) {
  std::vector<std::string> flags = LogFlags();
  flags.push_back("--max-restarts=1");
  Launcher launcher(Standalone(1, flags, absl::StrCat(WaitFor("fail"), "exit 5")));
  ASSERT_TRUE(Eventually([&] { return !std::filesystem::is_empty(logs_.path()); }));
  StallNextRound();
  Tell("fail");
  ASSERT_TRUE(launcher.WaitForErr("exited with code 5")) << launcher.Err();
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait(), 128 + SIGTERM) << launcher.Err();
}

}  // namespace
}  // namespace ddprun::testing

// Two builds in one rendezvous (protocol 7.4): servers and launchers of this build and of another one, whose ddprun and
// rendezvousd are in the folder $DDPRUN_OLD_BIN. Skipped without it:
//   bazel test --test_env=DDPRUN_OLD_BIN=/folder //tests/e2e:e2e_tests --test_filter=RollingUpgradeTest.*
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

class RollingUpgradeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = getenv("DDPRUN_OLD_BIN");
    if (folder == nullptr) GTEST_SKIP() << "DDPRUN_OLD_BIN names no other build";
    old_ = folder;
  }

  std::string Ddprun(bool old) const { return old ? old_ + "/ddprun" : "launcher/ddprun"; }
  std::string Rendezvousd(bool old) const { return old ? old_ + "/rendezvousd" : "rendezvous/daemon/rendezvousd"; }

  std::unique_ptr<Process> StartServer(bool old, int port) const {
    auto server = std::make_unique<Process>(
        std::vector<std::string>{Rendezvousd(old), absl::StrCat("--listen=127.0.0.1:", port)});
    EXPECT_TRUE(server->WaitForOut("listening")) << server->Err();
    return server;
  }

  // Runs the servers one after the other; each but the first starts during the job's only round.
  void RunJob(bool old_a, bool old_b, const std::vector<bool>& old_servers) {
    TempDir dir;
    const std::string script = std::string(kSayRank) + "while [ ! -e " + dir.File("end") + " ]; do sleep 0.02; done";
    const int port = FreePort();
    std::unique_ptr<Process> server = StartServer(old_servers.front(), port);
    const std::vector<std::string> flags = NodeFlags(port, "2", 1, {"--rdzv-conf=is_host=false"}, script);
    Process a(Launcher::Command(Ddprun(old_a), flags), {{"LOGLEVEL", "INFO"}});
    Process b(Launcher::Command(Ddprun(old_b), flags), {{"LOGLEVEL", "INFO"}});
    ASSERT_TRUE(a.WaitForOut("rank=")) << a.Err();
    ASSERT_TRUE(b.WaitForOut("rank=")) << b.Err();
    for (size_t i = 1; i < old_servers.size(); ++i) {
      server->Signal(SIGKILL);
      server->Wait();
      server = StartServer(old_servers[i], port);
      ASSERT_TRUE(server->WaitForErr("joined")) << server->Err();
    }
    Touch(dir.File("end"));
    ExpectEnd({&a, &b});
    // No worker was started again.
    EXPECT_EQ(Count(a.Out() + b.Out(), "rank="), 2) << a.Out() << b.Out();
  }

  std::string old_;
};

TEST_F(RollingUpgradeTest, OldLaunchers_ServerIsUpgradedAndPutBack) { RunJob(true, true, {true, false, true}); }
TEST_F(RollingUpgradeTest, NewLaunchers_ServerIsUpgradedAndPutBack) { RunJob(false, false, {true, false, true}); }
TEST_F(RollingUpgradeTest, LaunchersOfBothBuilds_ServerIsUpgradedAndPutBack) {
  RunJob(true, false, {false, true, false});
}

}  // namespace
}  // namespace ddprun::testing

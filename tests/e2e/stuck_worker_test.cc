// Workers that are stuck in the kernel. A process waits in state D, but not for SIGKILL, while a child of vfork has not
// executed its program; a frozen one does not even end on SIGKILL.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

class StuckWorkerTest : public PythonWorkersTest {};

TEST_F(StuckWorkerTest, UninterruptibleStateTimeout_OneNode_EndsWithoutRestart) {
  environment_["TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"] = "0.2";
  environment_["FIFO"] = dir_.File("fifo");
  Finished launcher = Run(128 + SIGKILL, 2, {"--max-restarts=3", "--shutdown-timeout=0.2"}, R"(
import os, signal
if os.environ["RANK"] == "1":
    os.mkfifo(os.environ["FIFO"])
    open_fifo = (os.POSIX_SPAWN_OPEN, 0, os.environ["FIFO"], os.O_RDONLY, 0)
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[open_fifo])
signal.pause()
)");
  EXPECT_THAT(launcher.Err(), HasSubstr("is stuck in the kernel: in uninterruptible sleep for 200ms "
                                        "(TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT); state D"));
  EXPECT_THAT(launcher.Err(), AllOf(HasSubstr("the job has no other node"), Not(HasSubstr("new round"))));
}

// A cgroup of the freezer. Its processes run again when it goes out of scope.
class Freezer {
 public:
  Freezer() { valid_ = mkdir(folder_.c_str(), 0700) == 0 && access((folder_ + "/freezer.state").c_str(), W_OK) == 0; }
  ~Freezer() {
    if (!valid_) return;
    Write("freezer.state", "THAWED");
    EXPECT_TRUE(Eventually([&] { return rmdir(folder_.c_str()) == 0; }));
  }
  bool valid() const { return valid_; }
  void Freeze(const std::string& pid) {
    Write("cgroup.procs", pid);
    Write("freezer.state", "FROZEN");
    EXPECT_TRUE(Eventually([&] { return ReadFile(folder_ + "/freezer.state") == "FROZEN\n"; }));
  }

 private:
  void Write(const std::string& file, const std::string& text) { std::ofstream(folder_ + "/" + file) << text; }

  const std::string folder_ = absl::StrCat("/sys/fs/cgroup/freezer/ddprun-test-", getpid());
  bool valid_ = false;
};

std::string PidIn(const std::string& out) {
  const size_t at = out.find("pid=") + 4;
  return out.substr(at, out.find(' ', at) - at);
}

TEST_F(StuckWorkerTest, Sigkill_WorkerSurvives_OthersGoOnAndItsNodeLeaves) {
  Freezer freezer;
  if (!freezer.valid()) GTEST_SKIP() << "no access to a freezer of cgroups, version 1";
  const int port = FreePort();
  Rendezvousd server(port);
  const std::string script = absl::StrCat(kSayRank, "exec sleep 1000");
  const auto flags = [&](int node_rank) {
    return NodeFlags(port, "1:2", 1,
                     {"--max-restarts=1", "--shutdown-timeout=0.2", "--rdzv-conf=node_cooldown=3",
                      absl::StrCat("--node-rank=", node_rank)},
                     script);
  };
  Launcher a(flags(0)), b(flags(1));
  ASSERT_TRUE(AllSay({&a, &b}, "round=1 ", 2));
  freezer.Freeze(PidIn(b.Out()));
  kill(std::stoi(PidIn(a.Out())), SIGKILL);
  ASSERT_TRUE(b.WaitForErr("is stuck in the kernel: alive 30s after SIGKILL; state D")) << b.Err();
  EXPECT_TRUE(a.WaitForOut("rank=0/1 local=0/1 group=0/1 attempt=1 round=2 ")) << a.Err();
  EXPECT_TRUE(b.WaitForErr("is left out for 3s (node_cooldown): one of its workers is stuck in the kernel")) << b.Err();
  EXPECT_EQ(b.Wait(), 1);
  EXPECT_THAT(b.Err(), HasSubstr("this node leaves the job, and its host may have to be restarted"));
  EXPECT_EQ(Count(b.Out(), "rank="), 1) << "a second worker would use the same device";
  a.Signal(SIGTERM);
  EXPECT_EQ(a.Wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace ddprun::testing

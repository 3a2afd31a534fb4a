// Launchers and servers at the limit of processes and threads, and where a seccomp filter refuses system calls.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

// Programs that run as a user without other processes, since the limit counts all of a user and does not bind root.
class ProcessLimitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    // The other user may enter this folder.
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    std::filesystem::permissions(folder_, std::filesystem::perms(0755));
    for (const std::string program : {"launcher/ddprun", "rendezvous/daemon/rendezvousd"}) {
      std::filesystem::copy_file(program, std::filesystem::path(folder_) / std::filesystem::path(program).filename());
    }
  }
  ~ProcessLimitTest() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> Command(int limit, const std::string& program, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"/usr/bin/setpriv", "--reuid=54321", "--regid=54321", "--clear-groups",
                                         "prlimit", absl::StrCat("--nproc=", limit), folder_ + "/" + program});
    return arguments;
  }

  std::string folder_ = "/tmp/ddprun_limit_XXXXXX";
};

TEST_F(ProcessLimitTest, Launcher_EndsWithItsJobOrWithALine) {
  int failed = 0;
  for (int limit = 1; limit <= 12; ++limit) {
    Process launcher(Command(limit, "ddprun", Standalone(4, {}, "true")), {{"TMPDIR", "/tmp"}});
    const int code = launcher.Wait();
    EXPECT_THAT(code, ::testing::AnyOf(0, 1, 126)) << limit << ": " << launcher.Err();
    EXPECT_THAT(launcher.Err(), Not(HasSubstr("this is a bug"))) << limit;
    if (code == 0) continue;
    ++failed;
    EXPECT_THAT(launcher.Err(), HasSubstr(absl::StrCat("(ulimit -u: ", limit))) << limit;
  }
  EXPECT_GE(failed, 3) << "the limit has had no effect";
}

TEST_F(ProcessLimitTest, Server_ServesOrEndsWithALine) {
  bool served = false;
  for (int limit = 1; !served && limit <= 64; ++limit) {
    Process server(Command(limit, "rendezvousd", {"--listen=127.0.0.1:0"}));
    served = server.WaitForOut("listening");
    if (served) server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait(), served ? 0 : 1) << limit << ": " << server.Err();
    EXPECT_TRUE(served || absl::StrContains(server.Err(), absl::StrCat("(ulimit -u: ", limit))) << server.Err();
  }
  EXPECT_TRUE(served);
}

// Starts a launcher that gets EPERM from pidfd_open and pidfd_send_signal, as in older container runtimes. The filter
// applies to a thread and the processes that it starts.
std::unique_ptr<Launcher> StartWithoutPidfds(std::vector<std::string> arguments,
                                             std::map<std::string, std::string> environment = {}) {
  std::unique_ptr<Launcher> launcher;
  std::thread([&] {
    sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                             BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 1, 0),
                             BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_send_signal, 0, 1),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog filter{std::size(program), program};
    EXPECT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    EXPECT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
    launcher = std::make_unique<Launcher>(std::move(arguments), std::move(environment));
  }).join();
  return launcher;
}

TEST(SeccompTest, PidfdsRefused_JobRunsAndPreloadSaysWhyNot) {
  EXPECT_EQ(StartWithoutPidfds(Standalone(2, {}, "exit 3"))->Wait(), 3);
  const auto preload =
      StartWithoutPidfds({"--standalone", "--preload=json", "-m", "this"}, {{"PYTHON_EXEC", "python3"}});
  EXPECT_EQ(preload->Wait(), 0) << preload->Err();
  EXPECT_THAT(preload->Out(), HasSubstr("Beautiful is better"));
  EXPECT_THAT(preload->Err(), HasSubstr("--preload has no effect: pidfd_open: Operation not permitted"));
}

TEST(SeccompTest, PidfdsRefused_LauncherKilled_AllThatItStartedVanishes) {
  const auto launcher = StartWithoutPidfds(Standalone(1, {}, "env -i setsid sleep 1000 & echo \"up $! .\"; wait"));
  ASSERT_TRUE(launcher->WaitForOut(" .\n")) << launcher->Err();
  const pid_t orphan = atoi(launcher->Out().c_str() + 3);
  launcher->Signal(SIGKILL);
  EXPECT_EQ(launcher->Wait(), 128 + SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !Alive(orphan); }));
}

}  // namespace
}  // namespace ddprun::testing

// main() of tests with hosts: enters new namespaces, then runs the tests.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/hosts/hosts.h"

namespace {

constexpr int kNamespaces = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID;

bool Write(const char* path, const std::string& text) {
  FILE* file = fopen(path, "w");
  if (file == nullptr) return false;
  const bool written = fputs(text.c_str(), file) >= 0;
  return fclose(file) == 0 && written;
}

// Root needs no user namespace; other users may be allowed to create one in which they are root.
bool EnterNamespaces() {
  if (unshare(kNamespaces) == 0) return true;
  const uid_t user = getuid();
  const gid_t group = getgid();
  return unshare(CLONE_NEWUSER | kNamespaces) == 0 && Write("/proc/self/setgroups", "deny") &&
         Write("/proc/self/uid_map", "0 " + std::to_string(user) + " 1") &&
         Write("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
}

// Mounts are private; /run is empty, so that the namespaces' names do not conflict with others.
bool Mount() {
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0 &&
         mount("tmpfs", "/run", "tmpfs", 0, nullptr) == 0;
}

int StatusOf(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// The namespaces' first process, which reaps all others; they are killed when it ends.
int RunInit(pid_t tests) {
  while (true) {
    int status = 0;
    const pid_t gone = waitpid(-1, &status, 0);
    if (gone == tests) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (gone < 0 && errno != EINTR) return 1;
  }
}

}  // namespace

std::string ddprun::testing::namespaces_error;

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!EnterNamespaces()) {
    ddprun::testing::namespaces_error = strerror(errno);
    return RUN_ALL_TESTS();
  }
  const pid_t init = fork();
  if (init < 0) return 1;
  // Skips exit handlers: LeakSanitizer's needs a thread, which cannot be created here.
  if (init > 0) _exit(StatusOf(init));
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!Mount()) ddprun::testing::namespaces_error = strerror(errno);
  const pid_t tests = fork();
  if (tests > 0) _exit(RunInit(tests));
  return tests < 0 ? 1 : RUN_ALL_TESTS();
}

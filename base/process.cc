#include "base/process.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

// Common prefix of the names of all processes in this pid namespace and boot.
std::string Prefix() {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot_id);
  struct stat pids = {};
  if (boot_id.empty() || stat("/proc/self/ns/pid", &pids) != 0) return "";
  return absl::StrCat(boot_id, " ", pids.st_ino, " ");
}

}  // namespace

std::string ProcessName() {
  const std::string prefix = Prefix();
  return prefix.empty() ? "" : absl::StrCat(prefix, getpid());
}

pid_t PidOfProcess(absl::string_view name) {
  const std::string prefix = Prefix();
  pid_t pid = 0;
  if (prefix.empty() || !absl::StartsWith(name, prefix)) return 0;
  return absl::SimpleAtoi(name.substr(prefix.size()), &pid) && pid > 0 ? pid : 0;
}

std::string Hostname() {
  utsname name;
  if (uname(&name) != 0 || name.nodename[0] == '\0') return "localhost";
  return name.nodename;
}

std::string SignalName(int signal) {
  if (signal == SIGIO) return "SIGIO";  // the C library's other name for it is SIGPOLL
  if (const char* name = sigabbrev_np(signal)) return absl::StrCat("SIG", name);
  if (signal == SIGRTMIN) return "SIGRTMIN";
  if (signal > SIGRTMIN && signal <= SIGRTMAX) return absl::StrCat("SIGRTMIN+", signal - SIGRTMIN);
  return absl::StrCat("signal ", signal);
}

void ResetSignals() {
  for (int number = 1; number < NSIG; ++number) {
    if (number == SIGHUP || number == SIGINT || number == SIGQUIT) continue;
    struct sigaction action;
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace ddprun

#include "base/crash_handler.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <system_error>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "base/steady_time.h"

namespace ddprun {
namespace {

constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
constexpr absl::Duration kFlushTime = absl::Milliseconds(500);

// Everything the handler needs is prepared in advance, because it may only make system calls.
struct Line {
  char text[128];
  size_t size;
};
Line lines[NSIG];
alignas(16) char stack_of_handler[64 * 1024];

void OnFatalSignal(int number) {
  // A stopped terminal must not keep a dead program in memory.
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (poll(&room, 1, 0) > 0) (void)!write(STDERR_FILENO, lines[number].text, lines[number].size);
  raise(number);  // runs the default action, see SA_RESETHAND
}

[[noreturn]] void OnTerminate() {
  std::string what = "unknown exception";
  try {
    if (const std::exception_ptr current = std::current_exception()) std::rethrow_exception(current);
    what = "std::terminate was called";
  } catch (const std::system_error& error) {
    const int number = error.code().value();
    // Thrown by std::thread at the limit, which is no bug.
    if (typeid(error) == typeid(std::system_error) && (number == EAGAIN || number == EPERM)) {
      Log(LogLevel::kError, absl::StrCat("can't start a thread: ", ProcessLimitText(number)));
      FlushLog(SteadyNow() + kFlushTime);
      _exit(EXIT_FAILURE);
    }
    what = error.what();
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
  }
  Log(LogLevel::kError, absl::StrCat("internal error: ", what));
  FlushLog(SteadyNow() + kFlushTime);
  std::abort();
}

}  // namespace

void InstallCrashReport(const char* program) {
  std::set_terminate(OnTerminate);
  stack_t stack = {};
  stack.ss_sp = stack_of_handler;
  stack.ss_size = sizeof stack_of_handler;
  sigaltstack(&stack, nullptr);
  for (const int number : kFatal) {
    struct sigaction action;
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    const std::string text = absl::StrCat(program, ": crashed with ", SignalName(number), "; this is a bug in ",
                                          program, ", please report it\n");
    lines[number].size = text.copy(lines[number].text, sizeof lines[number].text);
    action = {};
    action.sa_handler = OnFatalSignal;
    action.sa_flags = SA_RESETHAND | SA_NODEFER | SA_ONSTACK;
    sigaction(number, &action, nullptr);
  }
}

}  // namespace ddprun

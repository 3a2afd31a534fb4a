// libddprun_crash.so: makes a Python worker that crashes in native code, or ends with an uncaught exception, leave an
// error file with its stack. The launcher preloads this library into workers that run Python. C++ programs call
// worker_contract/crash_report themselves.
//
// It also keeps a Python worker from hanging in pthread_join (see below).
//
// In Python the library removes itself from LD_PRELOAD, so that the worker's environment and its child processes are as
// without it. In other programs, such as scripts that choose a Python, it does nothing.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launcher/crash_report/uncaught_exception.h"
#include "worker_contract/crash_report.h"

namespace {

constexpr char kPreload[] = "LD_PRELOAD=";
constexpr char kName[] = "libddprun_crash.so";
constexpr long kShortJoinNanoseconds = 100'000'000;

// In place, so that nothing is allocated before the program starts.
void LeavePreload() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (strncmp(*entry, kPreload, sizeof kPreload - 1) != 0) continue;
    char* const list = *entry + sizeof kPreload - 1;
    char* library = list;
    size_t size = strcspn(library, ":");
    // It may follow a sanitizer's library.
    while (size < sizeof kName - 1 || strncmp(library + size - (sizeof kName - 1), kName, sizeof kName - 1) != 0) {
      if (library[size] == '\0') return;
      library += size + 1;
      size = strcspn(library, ":");
    }
    if (library[size] == ':') {
      memmove(library, library + size + 1, strlen(library + size + 1) + 1);
    } else if (library != list) {
      library[-1] = '\0';
    } else {
      do *entry = entry[1];
      while (*entry++ != nullptr);
    }
    return;
  }
}

// Python state of the calling thread if it holds the interpreter's lock, else null. PyGILState_Check is not sufficient:
// it is always true before Python starts, and in a process with subinterpreters.
void* LockedThread() {
  using Get = void* (*)();
  Get current = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "PyThreadState_GetUnchecked"));  // Python 3.13
  if (current == nullptr) current = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "_PyThreadState_UncheckedGet"));
  const Get own = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  if (current == nullptr || own == nullptr) return nullptr;
  void* const thread = current();
  return thread == own() ? thread : nullptr;
}

__attribute__((constructor)) void Load() {
  if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") == nullptr) return;
  LeavePreload();
  ddprun::worker_contract::ReportCrashes(nullptr);
  ddprun::launcher::ReportUncaughtExceptions();
}

}  // namespace

// Replaces the C library's pthread_join. A thread that joins another one while it holds the interpreter's lock waits
// forever if the other needs the lock to end. PyTorch does so: when DistributedDataParallel's reducer is freed, it may
// be the last owner of a ProcessGroupGloo, whose destructor joins a thread that frees the tensors of the last
// collective. So a join that takes long releases the lock meanwhile. A short one keeps it, since its caller may rely on
// that.
extern "C" __attribute__((visibility("default"))) int pthread_join(pthread_t thread, void** result) {
  const auto next = reinterpret_cast<int (*)(pthread_t, void**)>(dlsym(RTLD_NEXT, "pthread_join"));
  if (LockedThread() == nullptr) return next(thread, result);
  timespec until = {};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += kShortJoinNanoseconds;
  if (until.tv_nsec >= 1'000'000'000) {
    until.tv_nsec -= 1'000'000'000;
    ++until.tv_sec;
  }
  using TimedJoin = int (*)(pthread_t, void**, const timespec*);
  const int error = reinterpret_cast<TimedJoin>(dlsym(RTLD_NEXT, "pthread_timedjoin_np"))(thread, result, &until);
  if (error != ETIMEDOUT) return error;
  const auto unlock = reinterpret_cast<void* (*)()>(dlsym(RTLD_DEFAULT, "PyEval_SaveThread"));
  const auto lock = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "PyEval_RestoreThread"));
  void* const locked = unlock();
  const int joined = next(thread, result);
  lock(locked);
  return joined;
}

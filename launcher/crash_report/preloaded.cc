// libddprun_crash.so: a Python worker that crashes in native code leaves an error file with its stack. The launcher
// preloads this library into workers that run Python. Programs in C++ call worker_contract/crash_report themselves.
//
// In Python the library removes itself from LD_PRELOAD, so that the worker's environment and the programs that it
// starts are as they would be without it. In other programs, as scripts that choose a Python, it does nothing.
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "worker_contract/crash_report.h"

namespace {

constexpr char kPreload[] = "LD_PRELOAD=";
constexpr char kName[] = "libddprun_crash.so";

// In place: nothing is allocated before the program's own start.
void LeavePreload() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (strncmp(*entry, kPreload, sizeof kPreload - 1) != 0) continue;
    char* const list = *entry + sizeof kPreload - 1;
    const size_t first = strcspn(list, ":");
    if (first < sizeof kName - 1 || strncmp(list + first - (sizeof kName - 1), kName, sizeof kName - 1) != 0) return;
    if (list[first] == ':') {
      memmove(list, list + first + 1, strlen(list + first + 1) + 1);
      return;
    }
    do *entry = entry[1];
    while (*entry++ != nullptr);
    return;
  }
}

__attribute__((constructor)) void Load() {
  if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") == nullptr) return;
  LeavePreload();
  ddprun::worker_contract::ReportCrashes(nullptr);
}

}  // namespace

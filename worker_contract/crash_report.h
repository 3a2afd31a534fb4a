#ifndef DDPRUN_WORKER_CONTRACT_CRASH_REPORT_H_
#define DDPRUN_WORKER_CONTRACT_CRASH_REPORT_H_

#include <signal.h>

// How a worker that crashes tells where: in the launcher's error file, which the failure summary on every node quotes;
// and how one that hangs is asked. Needs the C library only.
namespace ddprun::worker_contract {

// Writes the name of the function that `pc` lies in to `out`, at most `size` bytes with the final 0. False: unknown.
using Symbolizer = bool (*)(const void* pc, char* out, int size);

// From now on, a crash of this process (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) leaves an error file, at the path
// that TORCHELASTIC_ERROR_FILE has then, with the signal, the address and the crashed thread's stack: Python's where an
// interpreter runs, and the native one. Then the signal takes its course: exit status, core dump. An error file with
// content stays as it is. Signals that have a handler already (a sanitizer's) keep it. Python's faulthandler may be
// enabled later; it reports first.
//
// Only a worker reports, not the processes that it forks. What could block or crash again in a broken process is done
// in a copy of it, which ends after kMaxReportSeconds at the latest.
//
// Also, unless kStackSignal has a handler already: if it is sent with a value (sigqueue), the process writes the stacks
// of the thread that gets it to that descriptor of the sender, by way of /proc, and goes on.
//
// `symbolizer` may be null: then names are those that the dynamic linker knows. Call at start; not thread-safe.
void ReportCrashes(Symbolizer symbolizer);
inline constexpr int kMaxReportSeconds = 2;
// Processes without a handler ignore it.
inline constexpr int kStackSignal = SIGURG;

// Writes such an error file now, with the calling thread's stack: before a deliberate abort().
void WriteCrashReport(const char* message);

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_CRASH_REPORT_H_

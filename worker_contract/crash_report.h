#ifndef DDPRUN_WORKER_CONTRACT_CRASH_REPORT_H_
#define DDPRUN_WORKER_CONTRACT_CRASH_REPORT_H_

#include <signal.h>

// Reports of crashed workers (written to the launcher's error file, which the failure summary on every node quotes) and
// stacks of hanging workers on request. Needs the C library only.
namespace ddprun::worker_contract {

// Writes the name of the function that contains `pc` to `out`, at most `size` bytes with the final 0. False: unknown.
using Symbolizer = bool (*)(const void* pc, char* out, int size);

// After this call, a crash of this process (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) writes an error file, at the path
// that TORCHELASTIC_ERROR_FILE has then, with the signal, the address and the crashed thread's stack: Python's if an
// interpreter runs, and the native one. Then the signal takes effect: exit status, core dump. A nonempty error file is
// kept. Signals that have a handler already (a sanitizer's) keep it. Python's faulthandler may be enabled later; it
// reports first.
//
// Only a worker reports, not the processes that it forks. Work that could block or crash again in a broken process is
// done in a copy of it, which ends after kMaxReportSeconds at the latest.
//
// Also installs a handler for kStackSignal, unless it has one: if the signal is sent with a value (sigqueue), the
// receiving thread writes its stacks to the sender's descriptor with that number, through /proc, and continues.
//
// `symbolizer` may be null: names are then those known to the dynamic linker. Call at start; not thread-safe.
void ReportCrashes(Symbolizer symbolizer);
inline constexpr int kMaxReportSeconds = 2;
// Processes without a handler ignore this signal.
inline constexpr int kStackSignal = SIGURG;

// Writes an error file of the same form now, with the calling thread's stack; for use before a deliberate abort().
void WriteCrashReport(const char* message);

// Writes an error file of the same form with these texts, in UTF-8. It replaces that of an earlier call, which was not
// about the end of this process. REQUIRES: ReportCrashes was called.
void WriteExceptionReport(const char* message, const char* traceback);

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_CRASH_REPORT_H_

#ifndef DDPRUN_BASE_CRASH_HANDLER_H_
#define DDPRUN_BASE_CRASH_HANDLER_H_

namespace ddprun {

// Sees to it that a program that crashes says so on standard error: an exception that nobody catches is logged with
// its text; SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT get a handler that writes one line and lets the signal take its
// course (exit code, core dump). A handler that is there already, as a sanitizer's, stays. `program` is a literal.
// Call at start, after InitLog.
void InstallCrashReport(const char* program);

}  // namespace ddprun

#endif  // DDPRUN_BASE_CRASH_HANDLER_H_

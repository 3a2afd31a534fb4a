#ifndef DDPRUN_BASE_CRASH_HANDLER_H_
#define DDPRUN_BASE_CRASH_HANDLER_H_

namespace ddprun {

// Makes a crashing program report this on standard error. An uncaught exception is logged with its text. SIGSEGV,
// SIGBUS, SIGILL, SIGFPE and SIGABRT get a handler that writes one line and then lets the default action run (exit
// code, core dump). Existing handlers, such as a sanitizer's, are kept. `program` is a string literal. Call at program
// start, after InitLog.
void InstallCrashReport(const char* program);

}  // namespace ddprun

#endif  // DDPRUN_BASE_CRASH_HANDLER_H_

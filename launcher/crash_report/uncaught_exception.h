#ifndef DDPRUN_LAUNCHER_CRASH_REPORT_UNCAUGHT_EXCEPTION_H_
#define DDPRUN_LAUNCHER_CRASH_REPORT_UNCAUGHT_EXCEPTION_H_

namespace ddprun::launcher {

// After this call, an exception that ends this Python process writes an error file with type, message and traceback, as
// torch's @record does, before Python prints it. KeyboardInterrupt and SystemExit write none. Nor do exceptions that do
// not end the process: those of threads, and those that native code prints.
//
// An audit hook of the interpreter, which Python 3.8 and newer have; older ones run without. Call before Python starts.
void ReportUncaughtExceptions();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CRASH_REPORT_UNCAUGHT_EXCEPTION_H_

#ifndef DDPRUN_LAUNCHER_CRASH_REPORT_AUDIT_HOOK_H_
#define DDPRUN_LAUNCHER_CRASH_REPORT_AUDIT_HOOK_H_

namespace ddprun::launcher {

// Called with each of Python's audit events and the tuple of its arguments. Returns 0.
using AuditHook = int (*)(const char* event, void* arguments);

// Adds a hook to the interpreter, for as long as it runs. False: this Python has none (before 3.8). Call before Python
// starts, at most once.
bool AddAuditHook(AuditHook hook);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CRASH_REPORT_AUDIT_HOOK_H_

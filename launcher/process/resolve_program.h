#ifndef DDPRUN_LAUNCHER_PROCESS_RESOLVE_PROGRAM_H_
#define DDPRUN_LAUNCHER_PROCESS_RESOLVE_PROGRAM_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/config/worker_command.h"

namespace ddprun::launcher {

// Finds the file that a shell would run for `name`: a name with a slash is used as is, any other is searched in the
// directories of `path` (the value of PATH; an empty entry is the working directory). Called before any worker starts,
// so that a wrong name gives one clear message instead of one per worker. Thread-safe.
//
// NotFound (a shell's 127): no such file. PermissionDenied (126): it exists but may not be executed.
// FailedPrecondition (126): a directory or another file that can't be executed. InvalidArgument: `name` is empty.
absl::StatusOr<std::string> ResolveProgram(absl::string_view name, absl::string_view path);

// Value of PATH, or a shell's default without one. Thread-safe while no thread sets environment variables.
std::string SearchPath();

// Checks a script without running it. Thread-safe.
ScriptFile InspectScript(const std::string& file);

// Explains in one line why execve of `program` failed with `error_number`, and what to do about it, after examining the
// file: a missing #! interpreter, a missing dynamic loader, an executable for another architecture. Codes are those of
// ResolveProgram, FailedPrecondition for a bad format, and ResourceExhausted if memory, processes or descriptors are
// exhausted, where a retry may help. Thread-safe.
absl::Status ExplainExecError(const std::string& program, int error_number);

// Exit code as in a shell for a program that could not be started: 127 for NotFound, else 126.
int ExitCodeOfStartError(const absl::Status& status);

// Path of a file installed with this program: next to its executable, or in ../lib from there. InvalidArgument, with
// both paths, if it is in neither. Thread-safe.
absl::StatusOr<std::string> CompanionFile(const std::string& name);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_RESOLVE_PROGRAM_H_

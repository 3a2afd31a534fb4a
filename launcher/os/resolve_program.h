#ifndef DDPRUN_LAUNCHER_OS_RESOLVE_PROGRAM_H_
#define DDPRUN_LAUNCHER_OS_RESOLVE_PROGRAM_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/core/script_file.h"

namespace ddprun::launcher {

// Finds the file that a shell would run for `name`: a name with a slash is taken as it is, another one is looked
// for in the folders of `path` (the value of PATH; an empty part is the working directory). Done before anything is
// started, so that a wrong name is one clear message and not one per worker. Thread-safe.
//
// NotFound (a shell's 127): no such file. PermissionDenied (126): it is there but must not be executed.
// FailedPrecondition (126): it is a folder or another thing that can't be run. InvalidArgument: `name` is empty.
absl::StatusOr<std::string> ResolveProgram(absl::string_view name, absl::string_view path);

// What can be seen of the file without running it. Thread-safe.
ScriptFile LookAtScript(const std::string& file);

// Says in one line why execve of `program` failed with `error_number`, and what to do about it, after a look at the
// file: a missing interpreter of its #! line, a missing dynamic loader, another machine's executable. The codes are
// those of ResolveProgram; further FailedPrecondition for a bad format and ResourceExhausted for a lack of memory,
// processes or descriptors, where trying again can help. Thread-safe.
absl::Status ExplainExecError(const std::string& program, int error_number);

// What a shell returns for a program that could not be started: 127 for NotFound, else 126.
int ExitCodeOfStartError(const absl::Status& status);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_RESOLVE_PROGRAM_H_

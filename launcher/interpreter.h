#ifndef DDPRUN_LAUNCHER_INTERPRETER_H_
#define DDPRUN_LAUNCHER_INTERPRETER_H_

#include <string>

#include "absl/status/status.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Path of the Python interpreter that runs the workers' script; empty if the workers are programs or none is found.
std::string FindInterpreter(const LaunchConfig& config);

// Reads a Python script that is a pipe ("<(generate)") or standard input ("-") into memory, from where each worker of
// each round reads all of it; only one could read the pipe. Nothing is read for one worker whose script is typed at a
// terminal. Errors of opening and reading; ResourceExhausted: it is longer than 64 MiB.
absl::Status ReadScriptOnce(LaunchConfig* config);

// Returns a one-line hint if the job failed because a worker of this host did not find torch, while another Python that
// the user may have meant has it: that of the active environment, the launcher's environment, .venv beside the script
// or in the current directory, or the system's. Inspects files only. Empty if that is not the cause.
std::string TorchHint(const LaunchConfig& config, const std::string& host, const rendezvous::WorkerFailure& cause);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_INTERPRETER_H_

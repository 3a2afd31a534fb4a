#ifndef DDPRUN_LAUNCHER_INTERPRETER_H_
#define DDPRUN_LAUNCHER_INTERPRETER_H_

#include <string>

#include "launcher/config/launch_config.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// The Python that runs the workers' script, as a path; empty if they are programs, or if there is none.
std::string FindInterpreter(const LaunchConfig& config);

// One line for a job that failed because a worker of this host did not find torch, while another Python that the user
// may have meant has it: the environment that is active, the one that the launcher belongs to, .venv beside the script
// or here, the system's. Looks at files only. Empty: that is not it.
std::string TorchHint(const LaunchConfig& config, const std::string& host, const rendezvous::WorkerFailure& cause);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_INTERPRETER_H_

#ifndef DDPRUN_LAUNCHER_HOSTS_HOSTS_LAUNCHER_H_
#define DDPRUN_LAUNCHER_HOSTS_HOSTS_LAUNCHER_H_

#include <string>

#include "absl/status/statusor.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/parse_options.h"
#include "launcher/hosts/hosts_machine.h"

namespace ddprun::launcher {

// Environment variables that every host gets from this one, if they are set here: names, or beginnings of names before
// a '*'. --env adds to them.
inline constexpr const char* kPassedVariables[] = {
    "PATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "LANG",
    "LC_*",
    "TZ",
    "PYTHON*",
    "TORCH*",
    "PYTORCH*",
    "NCCL_*",
    "GLOO_*",
    "UCX_*",
    "FI_*",
    "OMP_*",
    "MKL_*",
    "KMP_*",
    "TRITON_*",
    "HF_*",
    "TRANSFORMERS_*",
    "WANDB_*",
    "TOKENIZERS_*",
    "LOGLEVEL",
};

// The plan of a command line with --hosts. Reads the hostfile and the environment. `config` is that of a job of one
// node with the same flags, `python` the interpreter of this
// host, empty if the workers are programs. InvalidArgument: one line.
absl::StatusOr<HostsPlan> PlanHosts(const ParsedOptions& parsed, const LaunchConfig& config, const std::string& python);

// Runs the job on its hosts and returns the exit code. Call it from the main thread, before any other thread exists.
int RunOnHosts(HostsPlan plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_HOSTS_LAUNCHER_H_

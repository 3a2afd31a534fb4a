#ifndef DDPRUN_LAUNCHER_WORKERS_RANK_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_WORKERS_RANK_ENVIRONMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "launcher/config/flag_value.h"
#include "launcher/config/launch_config.h"
#include "rendezvous/core/messages.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// Values of the launcher that workers receive, besides the configuration.
struct LauncherFacts {
  std::string launcher_ids;            // ids of this launcher and of outer ones (LauncherIdForWorkers)
  std::string gloo_interface;          // default of GLOO_SOCKET_IFNAME; empty in a job of one node
  std::optional<absl::Time> job_end;   // end of the job's time limit, if known
  std::vector<std::string> preloaded;  // libraries to put first in LD_PRELOAD; no name contains a space or ':'
  std::string worker_link;             // address of the worker link; empty: none
};

// Returns the whole environment ("NAME=value") of one worker: `base`, the launcher's own environment, in which the
// variables of worker_contract/environment.h replace inherited ones.
//   - Three variables are only defaults, which an inherited value overrides: TORCH_NCCL_ASYNC_ERROR_HANDLING=1;
//     OMP_NUM_THREADS=1 if slots > 1 (as in torchrun, so that several workers do not each use all processors); and in a
//     job of several nodes GLOO_SOCKET_IFNAME, because Gloo alone would choose the address to which the host's own name
//     resolves, which other hosts often can't reach. NCCL is left to find its interfaces itself: it knows the fast
//     ones, which may differ from the one that launchers use.
//   - With `devices`, the variables of `accelerators` name the worker's only.
//   - `preloaded` precedes the inherited libraries of LD_PRELOAD, except sanitizers.
//   - PET_ variables are removed: they are flags of this launcher, and a launcher started by the worker would read
//     them.
//   - All other variables are passed on, in order.
// `error_file` may be empty. REQUIRES: 0 <= local_rank < config.slots.
std::vector<std::string> RankEnvironment(const rendezvous::Assignment& assignment, int local_rank,
                                         const LaunchConfig& config, const LauncherFacts& facts,
                                         const std::string& error_file, absl::Span<const std::string> base);

// Returns the message that tells a suspended worker about its next round, in place of an environment. LOCAL_RANK and
// all values that do not depend on the round stay unchanged.
worker_contract::LinkReForm ReformLine(const rendezvous::Assignment& assignment, int local_rank, int slots);

// Returns the environment shared by all workers in all rounds, for a process from which workers are forked. Contains no
// variable of a rank or round, not even inherited ones.
std::vector<std::string> CommonEnvironment(const LaunchConfig& config, const LauncherFacts& facts,
                                           absl::Span<const std::string> base);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKERS_RANK_ENVIRONMENT_H_

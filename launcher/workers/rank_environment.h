#ifndef DDPRUN_LAUNCHER_WORKERS_RANK_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_WORKERS_RANK_ENVIRONMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "launcher/config/port_range.h"
#include "rendezvous/core/messages.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// What all workers of this launcher have in common, whatever the round.
struct GroupSettings {
  std::string job_id;
  std::string launcher_id;
  std::string role = "default";
  int slots = 1;  // workers on this node
  int max_restarts = 0;
  std::vector<std::string> devices;  // by local rank: CUDA_VISIBLE_DEVICES, with LOCAL_RANK=0; empty: as inherited
  std::vector<int> signals_to_handle;
  absl::Duration stop_grace = absl::Seconds(30);  // from the signal to stop to SIGKILL
  std::optional<absl::Time> job_end;              // when the job's time is over, where known
  std::string gloo_interface;                     // default of GLOO_SOCKET_IFNAME; empty: none, as in a job of one node
  std::optional<PortRange> port_range;            // of what workers listen on
  int reserved_port = 0;                          // but not on this one: the server's
  std::vector<std::string> preloaded;             // libraries, first in LD_PRELOAD; none of them has a space or ':'
  std::string worker_link;                        // its address; empty: there is none
};

// The whole environment ("NAME=value") of one worker: `base`, the launcher's own environment, with the variables of
// worker_contract/environment.h in place of any inherited ones. Three of them are only defaults, which an inherited
// value overrides: TORCH_NCCL_ASYNC_ERROR_HANDLING=1; OMP_NUM_THREADS=1 if slots > 1 (as torchrun, so that several
// workers do not each take all processors); and in a job of several nodes GLOO_SOCKET_IFNAME, because Gloo alone
// would take the address that the host's own name has there, which other hosts often can't reach. NCCL is left to find
// its interfaces itself: it knows the fast ones, which need not be the one that launchers meet over.
// `preloaded` stands in front of what LD_PRELOAD has already, but for sanitizers.
// PET_ variables are left out: they are flags of this launcher, and a launcher started by the worker would take them
// for its own. All other variables are passed on, in order.
// `error_file` may be empty. REQUIRES: 0 <= local_rank < settings.slots.
std::vector<std::string> RankEnvironment(const rendezvous::Assignment& assignment, int local_rank,
                                         const GroupSettings& settings, const std::string& error_file,
                                         absl::Span<const std::string> base);

// What a suspended worker is told of its next round instead: LOCAL_RANK and whatever is not of a round stay.
worker_contract::LinkReForm ReformLine(const rendezvous::Assignment& assignment, int local_rank, int slots);

// What the environments of all workers of all rounds have in common: that of a process which workers are forked from.
// Has no variable of a rank or a round, inherited ones neither.
std::vector<std::string> CommonEnvironment(const GroupSettings& settings, absl::Span<const std::string> base);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKERS_RANK_ENVIRONMENT_H_

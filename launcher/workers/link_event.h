#ifndef DDPRUN_LAUNCHER_WORKERS_LINK_EVENT_H_
#define DDPRUN_LAUNCHER_WORKERS_LINK_EVENT_H_

#include <cstdint>
#include <variant>

#include "rendezvous/core/messages.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// The worker said that its process group is broken, which tells of it as of a failure.
struct GroupBroken {
  uint64_t round = 0;
  rendezvous::WorkerFailure failure;
};

// The worker's connection is no more.
struct LinkClosed {};

// What happens on a worker's link, but for its progress.
using LinkEvent =
    std::variant<worker_contract::LinkHello, worker_contract::LinkSuspended, worker_contract::LinkReFormed,
                 worker_contract::LinkCheckpointed, GroupBroken, LinkClosed>;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKERS_LINK_EVENT_H_

#ifndef DDPRUN_LAUNCHER_WORKERS_LINK_EVENT_H_
#define DDPRUN_LAUNCHER_WORKERS_LINK_EVENT_H_

#include <cstdint>
#include <variant>

#include "rendezvous/core/messages.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// The worker reported that its process group is broken, with a description of the cause.
struct GroupBroken {
  uint64_t round = 0;
  rendezvous::WorkerFailure failure = rendezvous::NewFailure();
};

// The worker's connection was closed.
struct LinkClosed {};

// Events on a worker's link, except progress reports.
using LinkEvent =
    std::variant<worker_contract::LinkHello, worker_contract::LinkSuspended, worker_contract::LinkReFormed,
                 worker_contract::LinkCheckpointed, GroupBroken, LinkClosed>;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKERS_LINK_EVENT_H_

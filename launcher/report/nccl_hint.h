#ifndef DDPRUN_LAUNCHER_REPORT_NCCL_HINT_H_
#define DDPRUN_LAUNCHER_REPORT_NCCL_HINT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Returns advice on NCCL's network, in one line, if the failure's message or traceback shows that NCCL could not use
// it; else "". `interface`: the one over which this node's launcher talks to the others; empty if unknown.
std::string NcclHint(const rendezvous::WorkerFailure& failure, absl::string_view interface);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_REPORT_NCCL_HINT_H_

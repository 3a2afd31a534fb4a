#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURE_TEXT_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURE_TEXT_H_

#include <cstddef>
#include <string>

#include "rendezvous/core/messages.h"
#include "worker_contract/exit_codes.h"

// Texts for how a worker ended.
namespace ddprun::rendezvous {

using worker_contract::kExitCannotExecute;
using worker_contract::kExitNotFound;

// "exited with code 3", "was killed by SIGKILL (OOM-killed)", "was not started: no such program",
// "exited with 78 (non-restartable)", "reported a failure" (it lives), "was lost" (a node's failure, not a worker's).
std::string DescribeEnd(const WorkerFailure& failure);

// "rank 3 on node-b (local rank 1, pid 77)"; "node node-b" if no worker failed.
std::string DescribeWho(const WorkerFailure& failure);

// One sentence without a full stop: who, how it ended, its message if that adds anything, and where it was.
std::string DescribeFailure(const WorkerFailure& failure);

// Cuts each of its texts to `max_bytes`. REQUIRES: as CutMiddle (text.h).
void ShortenTexts(size_t max_bytes, WorkerFailure* failure);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURE_TEXT_H_

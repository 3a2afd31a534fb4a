#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURE_TEXT_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURE_TEXT_H_

#include <cstddef>
#include <string>

#include "rendezvous/core/messages.h"
#include "worker_contract/exit_codes.h"

// Texts that describe a WorkerFailure, for users and logs. Pure functions.
namespace ddprun::rendezvous {

using worker_contract::kExitCannotExecute;
using worker_contract::kExitNotFound;

// Returns how the worker ended: "exited with code 3", "was killed by SIGKILL (OOM-killed)", "was not started: no such
// program", "exited with 78 (non-restartable)", "reported a failure" (the worker is alive), "was lost" (the failure is
// a node's).
std::string DescribeEnd(const WorkerFailure& failure);

// Returns which worker failed: "rank 3 on node-b (local rank 1, pid 77)"; "node node-b" if the failure is a node's.
std::string DescribeWho(const WorkerFailure& failure);

// Returns one sentence without a period: DescribeWho, DescribeEnd, the failure's message unless the sentence already
// contains it, and the worker's last progress.
std::string DescribeFailure(const WorkerFailure& failure);

// Truncates each text of the failure to `max_bytes`. REQUIRES: max_bytes >= 256.
void ShortenTexts(size_t max_bytes, WorkerFailure* failure);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURE_TEXT_H_

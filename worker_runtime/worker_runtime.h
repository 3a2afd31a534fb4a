#ifndef DDPRUN_WORKER_RUNTIME_WORKER_RUNTIME_H_
#define DDPRUN_WORKER_RUNTIME_WORKER_RUNTIME_H_

// The whole worker runtime (docs/api.md). Including single headers instead compiles faster.
#include "base/status_macros.h"
#include "worker_runtime/base/non_restartable.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/checkpoint/tensors_file.h"
#include "worker_runtime/data/batch_sampler.h"
#include "worker_runtime/data/distributed_sampler.h"
#include "worker_runtime/ddp/comm_hook.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/ddp/shared_memory_all_reduce.h"
#include "worker_runtime/env/worker_env.h"
#include "worker_runtime/extras/extras.h"
#include "worker_runtime/process_group/choose_device.h"
#include "worker_runtime/process_group/collectives.h"
#include "worker_runtime/process_group/env_from_ranks.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/report_progress.h"
#include "worker_runtime/spawn/spawn.h"
#include "worker_runtime/state/training_state.h"
#include "worker_runtime/stop_requested.h"
#include "worker_runtime/training.h"
#include "worker_runtime/worker.h"

#endif  // DDPRUN_WORKER_RUNTIME_WORKER_RUNTIME_H_

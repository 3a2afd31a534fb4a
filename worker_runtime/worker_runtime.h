#ifndef DDPRUN_WORKER_RUNTIME_WORKER_RUNTIME_H_
#define DDPRUN_WORKER_RUNTIME_WORKER_RUNTIME_H_

// The whole worker runtime. Each header can as well be included alone, which compiles faster.

#include "worker_runtime/env/worker_env.h"               // IWYU pragma: export
#include "worker_runtime/nn/linear.h"                    // IWYU pragma: export
#include "worker_runtime/optim/adamw.h"                  // IWYU pragma: export
#include "worker_runtime/optim/zero_gradients.h"         // IWYU pragma: export
#include "worker_runtime/process_group/process_group.h"  // IWYU pragma: export
#include "worker_runtime/worker.h"                       // IWYU pragma: export

#endif  // DDPRUN_WORKER_RUNTIME_WORKER_RUNTIME_H_

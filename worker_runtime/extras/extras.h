#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_EXTRAS_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_EXTRAS_H_

// Parts of Python's PyTorch that LibTorch lacks. Including single headers instead compiles faster.
#include "worker_runtime/extras/amp.h"
#include "worker_runtime/extras/metrics.h"
#include "worker_runtime/extras/nn.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/extras/summary_writer.h"

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_EXTRAS_H_

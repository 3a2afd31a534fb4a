#ifndef DDPRUN_WORKER_RUNTIME_EXTRAS_EXTRAS_H_
#define DDPRUN_WORKER_RUNTIME_EXTRAS_EXTRAS_H_

// Parts of Python's PyTorch that LibTorch lacks. Including single headers instead compiles faster.
#include "worker_runtime/extras/amp/autocast.h"
#include "worker_runtime/extras/amp/grad_scaler.h"
#include "worker_runtime/extras/metrics/metrics.h"
#include "worker_runtime/extras/metrics/summary_writer.h"
#include "worker_runtime/extras/nn/clip_grad_norm.h"
#include "worker_runtime/extras/nn/linear.h"
#include "worker_runtime/extras/nn/parameters.h"
#include "worker_runtime/extras/nn/sync_batch_norm.h"
#include "worker_runtime/extras/optim/adamw.h"
#include "worker_runtime/extras/optim/lambda_lr.h"

#endif  // DDPRUN_WORKER_RUNTIME_EXTRAS_EXTRAS_H_

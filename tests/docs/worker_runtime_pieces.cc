// The pieces of code in docs/worker_runtime.md, here so that a compiler reads them. Nobody calls them.
#include <ATen/core/Tensor.h>

#include <iostream>

#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/data/distributed_sampler.h"
#include "worker_runtime/process_group/choose_device.h"
#include "worker_runtime/spawn/spawn.h"
#include "worker_runtime/worker.h"

absl::Status Train(c10::Device device, ddprun::Worker& worker);
void Evaluate();

int MainOnGpus() {
  const auto env = ddprun::WorkerEnv::FromEnvironment();
  const auto device = env.ok() ? ddprun::ChooseDevice(*env, "auto") : env.status();
  if (!device.ok()) {
    std::cerr << device.status().message() << "\n";
    return 2;
  }
  ddprun::RunWorker({.device = *device}, [&](ddprun::Worker& worker) { return Train(*device, worker); });
}

int MainThatSpawns() {
  const absl::Status status =
      ddprun::Spawn(4, {}, [](ddprun::Worker& worker) { return Train(c10::DeviceType::CPU, worker); });
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}

absl::Status GoOnInsideAnEpoch(ddprun::Worker& worker, ddprun::Checkpointer& checkpoints,
                               ddprun::DistributedSampler& sampler) {
  const absl::StatusOr<ddprun::CheckpointInfo> saved = checkpoints.Resume();
  if (!saved.ok()) return saved.status();
  ddprun::Progress progress = saved->progress;
  sampler.set_epoch(progress.epoch, progress.sampler_position / worker.group->size());
  // ... after some batches:
  progress.sampler_position = sampler.position() * worker.group->size();
  return checkpoints.Save(progress);
}

absl::Status KeepGoing(ddprun::Worker& worker) {
  const absl::Status status = worker.group->Try("evaluation", [&]() -> absl::Status {
    Evaluate();  // LibTorch code, which may throw
    return absl::OkStatus();
  });
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status;
}

#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINTER_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINTER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker_runtime/checkpoint/checkpoint_info.h"
#include "worker_runtime/checkpoint/file_system.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace ddprun {

class ProcessGroup;

struct CheckpointerOptions {
  // Directory of the checkpoints; created if missing. One job per directory.
  std::string folder = "";

  // Number of checkpoints to keep. Older ones are removed once a newer one is on disk. 0: all.
  int keep = 3;

  // Save returns once the state has been copied to host memory, and writes in the background. At most one save is in
  // progress: the next one waits for it, so none is skipped. Costs the memory of one checkpoint on rank 0.
  bool async = false;

  // true: every rank reads the checkpoint from `folder`, which all nodes must share. false: rank 0 reads it and sends
  // it to the others.
  bool shared_folder = false;

  // How long the other ranks wait for the disk of the one that writes or reads. It does not have to be less than the
  // group's timeout: they do not wait in a collective.
  absl::Duration disk_timeout = absl::Hours(1);

  // For tests: how files are written; must outlive the Checkpointer. nullptr: to disk.
  FileSystem* files = nullptr;
};

// Times are those of this rank.
struct CheckpointStats {
  int64_t saves = 0;           // calls of Save
  absl::Duration last_stall;   // how long the last Save blocked the trainer
  absl::Duration total_stall;  // sum over all calls
  absl::Duration last_write;   // how long the last completed save took to reach the disk (rank 0)
};

// Saves and restores a training job: parameters and buffers, the optimizer's state and options, the random number
// generators of every rank, and training progress.
//
//   auto checkpointer = ddprun::Checkpointer::Create(worker.group, *model, &optimizer, {.folder = "checkpoints"});
//   if (!checkpointer.ok()) return checkpointer.status();
//   absl::StatusOr<ddprun::CheckpointInfo> from = (*checkpointer)->Resume();
//   if (!from.ok()) return from.status();
//   for (int64_t step = from->progress.step; step < steps;) {
//     ...
//     if (++step % 100 == 0) {
//       if (absl::Status status = (*checkpointer)->Save({.step = step}); !status.ok()) return status;
//     }
//   }
//   return (*checkpointer)->Finish();
//
// Checkpoints are atomic: whenever a process or a machine stops, a checkpoint is complete or absent. Corruption is
// detected, and Resume then loads the previous one. docs/checkpoints.md describes the files and how to read them in
// Python.
//
// Resume, Save and Finish are collective: all ranks must call them in the same order, and all return the same result.
// Only rank 0 writes. Errors of the process group are returned unchanged. DeadlineExceeded: some ranks (named in the
// message) did not call the same function within the group's timeout, or a disk took longer than `disk_timeout`.
//
// Threads: one at a time, and it must be the training thread (Save is ordered after the work on its CUDA streams).
class Checkpointer {
 public:
  // `module` (the one inside DistributedDataParallel, not the wrapper) and `optimizer` must outlive the Checkpointer
  // and be on their training devices. `optimizer` nullptr: none is saved. `group` nullptr: a single process. Not
  // collective. Rank 0 creates the directory.
  // Errors: InvalidArgument: options.folder is not set; those of MakeFolder.
  static absl::StatusOr<std::unique_ptr<Checkpointer>> Create(std::shared_ptr<ProcessGroup> group,
                                                              torch::nn::Module& module,
                                                              torch::optim::Optimizer* optimizer,
                                                              CheckpointerOptions options);

  // Waits for a save in progress. If no call has returned its error, it is printed to stderr.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Loads the newest intact checkpoint. Rank 0 chooses it, so all ranks load the same one. Parameters keep their
  // devices and dtypes; optimizer options (lr, ...) are restored from the checkpoint, as in Python. If the world has
  // grown, new ranks keep their random number state. Damaged checkpoints are skipped with a warning on stderr. An empty
  // or missing directory is not an error: `path` is empty and nothing is changed.
  // Errors: InvalidArgument: module or optimizer differ from the saved ones; the message lists all differing names.
  // DataLoss: all checkpoints are damaged, or a rank (named in the message) can't read the one that rank 0 chose. After
  // an error the state may be partially loaded.
  absl::StatusOr<CheckpointInfo> Resume();

  // Saves under progress.step. When it returns OK, the checkpoint is on disk (async: it will be, or the next Save or
  // Finish returns the error; that Save still saves its own state). Earlier checkpoints are not affected in any case.
  // Errors: InvalidArgument: a negative step, or a tensor that can't be saved; Unimplemented: an unsupported optimizer;
  // those of FileSystem (ResourceExhausted: the disk is full).
  absl::Status Save(const Progress& progress);

  // Waits until everything is on disk, and returns the error of the last save unless another call has returned it.
  absl::Status Finish();

  CheckpointStats stats() const;

 private:
  class Impl;
  explicit Checkpointer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINTER_H_

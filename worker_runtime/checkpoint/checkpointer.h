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
  // Where the checkpoints lie; made if it is not there. One job per folder.
  std::string folder = "";

  // How many checkpoints are kept. Older ones are removed when a newer one is on the disk. 0: all.
  int keep = 3;

  // Save returns when the state has been copied to memory, and writes in the background. At most one save is under way:
  // the next one waits for it, so that none is left out. Costs the memory of one checkpoint on rank 0.
  bool async = false;

  // True: every rank reads the checkpoint from `folder` itself, which all nodes must share. False: rank 0 reads it and
  // sends it to the others.
  bool shared_folder = false;

  // How files are written; outlives the Checkpointer. nullptr: to the disk. For tests.
  FileSystem* files = nullptr;
};

// Times are those of this rank.
struct CheckpointStats {
  int64_t saves = 0;           // calls of Save
  absl::Duration last_stall;   // how long the last Save kept the trainer
  absl::Duration total_stall;  // of all calls
  absl::Duration last_write;   // how long the last finished save took to reach the disk (rank 0)
};

// Saves and restores a training job: parameters and buffers, the optimizer's state and options, the random number
// generators of every rank, and how far training has come.
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
// A checkpoint is whole or not there, whenever a process or a machine stops, and is found damaged if it is: Resume then
// takes the one before. docs/checkpoints.md says what lies in the folder and how Python reads it.
//
// Resume, Save and Finish are collective: all ranks call the same ones in the same order, and all return the same
// outcome. Only rank 0 writes. Errors of the process group are returned as they are.
//
// Threads: one at a time, which must be the one that trains (Save sees what its CUDA streams have done so far).
class Checkpointer {
 public:
  // `module` (the one inside DistributedDataParallel, not the wrapper) and `optimizer` outlive the Checkpointer, and
  // are on the devices where training has them. `optimizer` may be nullptr: none is saved. `group` of nullptr: a
  // program alone. Not collective; makes the folder on rank 0.
  // Errors: InvalidArgument: no folder given; those of MakeFolder.
  static absl::StatusOr<std::unique_ptr<Checkpointer>> Create(std::shared_ptr<ProcessGroup> group,
                                                              torch::nn::Module& module,
                                                              torch::optim::Optimizer* optimizer,
                                                              CheckpointerOptions options);

  // Waits for a save that is under way; its error, if nobody asks for it, goes to stderr.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Loads the newest checkpoint that is not damaged; rank 0 chooses, so that all ranks load the same one. Parameters
  // keep their devices and dtypes; options of the optimizer (lr, ...) become those of the checkpoint, as in Python.
  // With a larger world the random numbers of the ranks that are new stay as they are. Damaged checkpoints are skipped
  // with a line on stderr. An empty or missing folder is no error: `path` is empty and nothing was changed.
  // Errors: InvalidArgument: module or optimizer differ from those that were saved; all differing names are given.
  // DataLoss: there are checkpoints but all are damaged; or, naming the rank, one can't read what rank 0 chose. After
  // an error the state may be half loaded.
  absl::StatusOr<CheckpointInfo> Resume();

  // Saves under progress.step. When it returns OK, the checkpoint is on the disk (async: it will be, or the next Save
  // or Finish returns the error; that Save still does its own work). Earlier checkpoints are safe in any case.
  // Errors: InvalidArgument: negative step, or a tensor that can't be saved; Unimplemented: an optimizer of unknown
  // kind; those of FileSystem (ResourceExhausted: the disk is full).
  absl::Status Save(const Progress& progress);

  // Waits until everything is on the disk, and returns the error of the last save if no other call has.
  absl::Status Finish();

  CheckpointStats stats() const;

 private:
  class Impl;
  explicit Checkpointer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINTER_H_

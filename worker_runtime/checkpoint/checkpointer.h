#ifndef DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINTER_H_
#define DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINTER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker_runtime/checkpoint/checkpoint_info.h"
#include "worker_runtime/safetensors/file_system.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace ddprun {

class ProcessGroup;
class TrainingState;

struct CheckpointerOptions {
  // Directory of the checkpoints; created if missing, on the node that writes. One job per directory at a time.
  std::string folder = "";

  // Name of this training. Not empty: Resume loads only checkpoints that were saved under this name. Empty: Resume
  // continues the most recently started training in the directory, regardless of the job that saved it.
  std::string run_id = "";

  // Number of checkpoints of this training to keep. Older ones are removed once a newer one is on disk. 0: all.
  int keep = 3;

  // Save returns once the state has been copied to host memory, and writes in the background. At most one save is in
  // progress: the next one waits for it, so none is skipped. Costs the memory of one checkpoint on rank 0.
  bool async = false;

  // true: every rank reads the checkpoint from `folder`, which all nodes must share. false: a rank that has the newest
  // checkpoint reads it and sends it to the others.
  bool shared_folder = false;

  // Number of folders on different nodes that each have all checkpoints, for a `folder` on each node's own disk: with
  // 2, the loss of any one node loses none. Rank 0 and the lowest ranks of other nodes write, and Save succeeds if all
  // of them do. Every rank creates the folder; with fewer folders than copies, rank 0 prints a warning. Must be the
  // same on all ranks, and 1 with shared_folder.
  int copies = 1;

  // If no rank has a checkpoint in any round of a job after the first, Resume returns an error that the launcher does
  // not restart (NonRestartable), instead of a warning and step 0. For jobs in which losing the progress must not go
  // unnoticed; a job that fails before its first checkpoint then ends.
  bool require_checkpoint = false;

  // Save refuses parameters and optimizer state with NaN or infinite values, so that the last finite checkpoint is
  // kept. true: it saves them.
  bool allow_non_finite = false;

  // How long the other ranks wait for the disk of the rank that writes or reads. May exceed the group's timeout: they
  // do not wait in a collective.
  absl::Duration disk_timeout = absl::Hours(1);

  // The file system, replaced by tests; must outlive the Checkpointer. nullptr: the real disk.
  FileSystem* files = nullptr;
};

// Times on this rank.
struct CheckpointStats {
  int64_t saves = 0;           // calls of Save
  absl::Duration last_stall;   // how long the last Save blocked the trainer
  absl::Duration total_stall;  // sum over all calls
  absl::Duration last_write;   // how long the last completed save took to reach the disk (rank 0)
};

// Saves and restores a training job: its TrainingState (module, optimizer, and what the trainer adds), the random
// number generators of every rank, and training progress.
//
//   DDPRUN_ASSIGN_OR_RETURN(auto checkpointer, ddprun::Checkpointer::Create(worker.group(), *model, &optimizer,
//                                                                           {.folder = "checkpoints"}));
//   DDPRUN_ASSIGN_OR_RETURN(const ddprun::CheckpointInfo from, checkpointer->Resume());
//   for (int64_t step = from.progress.step; step < steps;) {
//     ...
//     if (++step % 100 == 0) DDPRUN_RETURN_IF_ERROR(checkpointer->Save({.step = step}));
//   }
//   return checkpointer->Finish();
//
// Checkpoints are atomic: if a process or a machine stops at any time, a checkpoint is complete or absent. Corruption
// is detected, and Resume then loads the previous one. docs/checkpoints.md describes the files and how to read them in
// Python.
//
// Resume, Save and Finish are collective: all ranks must call them in the same order, and all return the same result.
// Only rank 0 writes, unless there are `copies`. Errors of the process group are returned unchanged. DeadlineExceeded:
// some ranks (named in the message) did not call the same function within the group's timeout, or a disk took longer
// than `disk_timeout`.
//
// Threads: one at a time, and it must be the training thread (Save is ordered after the work on its CUDA streams).
class Checkpointer {
 public:
  // `state` must outlive the Checkpointer; the module must be on its training devices. `group` nullptr: a single
  // process. Not collective. Resume and Save create the directory on rank 0; with `copies`, Create does on all ranks.
  // Errors: InvalidArgument: options.folder is not set, or copies is invalid; those of FileSystem.
  static absl::StatusOr<std::unique_ptr<Checkpointer>> Create(std::shared_ptr<ProcessGroup> group, TrainingState& state,
                                                              CheckpointerOptions options);

  // Saves a module and an optimizer (nullptr: none), which must outlive the Checkpointer.
  static absl::StatusOr<std::unique_ptr<Checkpointer>> Create(std::shared_ptr<ProcessGroup> group,
                                                              torch::nn::Module& module,
                                                              torch::optim::Optimizer* optimizer,
                                                              CheckpointerOptions options);

  // Waits for a save in progress. If no call has returned its error, it is printed to stderr.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Loads the newest checkpoint that any rank holds intact, on all ranks. Parameters keep their devices and dtypes;
  // optimizer options (lr, ...) are restored from the checkpoint, as in Python. If the world has grown, new ranks keep
  // their random number state. Damaged checkpoints are skipped with a warning on stderr, as are names added to the
  // TrainingState that the checkpoint does not have. If there is no checkpoint anywhere, `path` is empty and nothing is
  // changed; after the first round, a warning names folder and host, or see `require_checkpoint`. A Checkpointer that
  // has not resumed anything begins a new run: it neither overwrites nor removes the files that are already in the
  // directory.
  // Errors: InvalidArgument: the state differs from the saved one; the message lists all differing names. DataLoss: all
  // checkpoints are damaged, or a rank (named in the message) can't read the chosen one; those of FileSystem: the
  // directory can't be created. After an error the state may be partially loaded.
  absl::StatusOr<CheckpointInfo> Resume();

  // Saves under progress.step. When it returns OK, the checkpoint is on disk (async: it will be, or the next Save or
  // Finish returns the error; that Save still saves its own state). Earlier checkpoints are never affected.
  // Errors: InvalidArgument: a negative step, or a tensor that can't be saved; FailedPrecondition: a parameter (named,
  // with the rank) is not finite, or workers that started later have saved in the directory, so this process was
  // replaced; Unimplemented: an optimizer without save(); those of FileSystem (ResourceExhausted: the disk is full).
  absl::Status Save(const Progress& progress);

  // Waits until everything is on disk, and returns the error of the last save unless another call has returned it.
  absl::Status Finish();

  // Continues with another group, which the ranks have formed in round `launcher_round` (DDPRUN_ROUND). Ranks that join
  // in it create their Checkpointer and need not call Resume: the next Save informs them of the current run. Not
  // collective; all ranks that have a Checkpointer must call it.
  void Rebind(std::shared_ptr<ProcessGroup> group, int64_t launcher_round);

  // Collective. True if a rank has a checkpoint of this training in its directory, intact or not: a restart would not
  // begin at step 0. Errors: those of the process group.
  absl::StatusOr<bool> HasCheckpoint();

  CheckpointStats stats() const;

 private:
  class Impl;
  explicit Checkpointer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_CHECKPOINT_CHECKPOINTER_H_

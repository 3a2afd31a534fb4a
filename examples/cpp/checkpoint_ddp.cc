// Saving and loading with DistributedDataParallel: all ranks have the same parameters, so only rank 0 writes them; no
// rank may read them before they are on disk; and each rank loads them onto its own device.
//
//   ddprun --standalone --nproc-per-node=2 --no-python checkpoint_ddp --folder=/tmp/checkpoints
//
// Checkpointer::Save and Resume include both barriers: Save returns on every rank once rank 0 has written, Resume loads
// on every rank the checkpoint that rank 0 chose, onto the devices of the module's parameters. Python can read the
// files with safetensors.torch.load_file, whatever device they were saved from.
#include <ATen/Functions.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "examples/cpp/example_main.h"
#include "examples/cpp/toy_model.h"
#include "worker_runtime/base/parameters.h"
#include "worker_runtime/checkpoint/checkpointer.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"
#include "worker_runtime/extras/optim.h"

namespace {

// A model with its optimizer and checkpointer.
struct Job {
  examples::ToyModel model;
  std::unique_ptr<ddprun::AdamW> optimizer;
  std::unique_ptr<ddprun::Checkpointer> checkpointer;
};

absl::StatusOr<Job> MakeJob(ddprun::Worker& worker, const std::string& folder) {
  Job job;
  job.model->to(worker.device());
  job.optimizer = std::make_unique<ddprun::AdamW>(ddprun::Parameters(job.model));
  DDPRUN_ASSIGN_OR_RETURN(job.checkpointer, ddprun::Checkpointer::Create(worker.group(), *job.model,
                                                                         job.optimizer.get(), {.folder = folder}));
  return job;
}

absl::Status SaveAndLoad(ddprun::Worker& worker, const std::string& folder) {
  DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
  DDPRUN_ASSIGN_OR_RETURN(const Job trained, MakeJob(worker, folder));
  {
    DDPRUN_ASSIGN_OR_RETURN(auto ddp, ddprun::MakeDistributedDataParallel(trained.model, worker.group()));
    const at::Tensor inputs = at::randn({20, 10}).to(worker.device()), labels = at::randn({20, 5}).to(worker.device());
    at::mse_loss(ddp->forward(inputs), labels).backward();
    trained.optimizer->step();
  }
  DDPRUN_RETURN_IF_ERROR(trained.checkpointer->Save({.step = 1}));
  if (worker.env().rank == 0) examples::Say(absl::StrCat("rank 0 has saved step 1 to ", folder));

  // Like a job after a restart: different initial weights.
  DDPRUN_ASSIGN_OR_RETURN(const Job loaded, MakeJob(worker, folder));
  DDPRUN_ASSIGN_OR_RETURN(const ddprun::CheckpointInfo info, loaded.checkpointer->Resume());
  const std::vector<at::Tensor> before = trained.model->parameters(), after = loaded.model->parameters();
  for (size_t i = 0; i < before.size(); ++i) {
    if (!at::equal(before[i], after[i])) return absl::InternalError("the loaded parameters differ from the saved ones");
  }
  examples::Say(absl::StrCat("rank ", worker.env().rank, " has loaded step ", info.progress.step, " onto ",
                             after[0].device().str(), ": the same parameters"));
  return loaded.checkpointer->Finish();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Saves a toy model from rank 0 and loads it on every rank.");
  std::string folder;
  app.add_option("--folder", folder, "where the checkpoint goes")->required();
  return examples::Main(app, argc, argv, [&](ddprun::Worker& worker) {
    torch::manual_seed(worker.env().rank);
    return SaveAndLoad(worker, folder);
  });
}

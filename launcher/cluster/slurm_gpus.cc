#include "launcher/cluster/slurm_gpus.h"

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "launcher/cluster/variables.h"

namespace ddprun::launcher {
namespace {

// GPUs that SLURM gave the step (or, without one, the job) on this node.
absl::StatusOr<std::optional<Found<int>>> Given(const EnvironmentLookup& environment, bool in_step) {
  const absl::StatusOr<std::optional<int64_t>> number = NumberVariable(environment, "SLURM_GPUS_ON_NODE", 0, kMaxGpus);
  if (!number.ok()) return number.status();
  if (number->has_value()) {
    return Found<int>{static_cast<int>(**number), Assignment("SLURM_GPUS_ON_NODE", absl::StrCat(**number))};
  }
  const char* const name = in_step ? "SLURM_STEP_GPUS" : "SLURM_JOB_GPUS";
  const std::optional<std::string> list = Variable(environment, name);
  if (!list.has_value()) return std::nullopt;
  return Found<int>{CountDevices(*list), Assignment(name, *list)};
}

// ", from --gpus-per-task", if that can be determined.
std::string BindingOption(const EnvironmentLookup& environment) {
  const std::optional<std::string> bind = Variable(environment, "SLURMD_TRES_BIND");
  const std::optional<std::string> per_task = Variable(environment, "SLURM_TRES_PER_TASK");
  if (Variable(environment, "SLURM_GPUS_PER_TASK").has_value() ||
      (per_task.has_value() && absl::StrContains(*per_task, "gpu")) ||
      (bind.has_value() && absl::StrContains(*bind, "gpu:per_task"))) {
    return ", from --gpus-per-task";
  }
  if (bind.has_value() && absl::StrContains(*bind, "gpu:")) return ", from --gpu-bind";
  return "";
}

}  // namespace

absl::Status AddSlurmGpus(const EnvironmentLookup& environment, bool in_step, ClusterEnvironment& cluster) {
  const absl::StatusOr<std::optional<Found<int>>> given = Given(environment, in_step);
  if (!given.ok()) return given.status();
  if (!given->has_value() || (*given)->value == 0) return absl::OkStatus();
  const Found<int>& all = **given;
  const absl::StatusOr<std::optional<Found<int>>> lists = VisibleGpus(environment);
  if (!lists.ok()) return lists.status();
  const std::optional<Found<int>>& visible = *lists;
  const std::string option = BindingOption(environment);

  if (!visible.has_value() || visible->value >= all.value) {
    cluster.gpus = all;
    cluster.gpu_binding =
        absl::StrCat("SLURM gave this task ", Counted(all.value, "GPU"), " of the node (", all.source, option, ")");
  } else if (visible->value > 0) {
    cluster.gpus = visible;
    cluster.gpu_binding = absl::StrCat("SLURM lets this task see ", visible->value, " of the step's ",
                                       Counted(all.value, "GPU"), " on this node (", visible->source, option, ")");
  } else {
    cluster.notes.push_back(absl::StrCat("SLURM gave ", Counted(all.value, "GPU"), " (", all.source, "), but ",
                                         visible->source, " hides them from this task"));
  }
  return absl::OkStatus();
}

}  // namespace ddprun::launcher

#include "launcher/cluster/query_job_end.h"

#include <optional>
#include <utility>

#include "launcher/cluster/slurm_text.h"
#include "launcher/process/resolve_program.h"

namespace ddprun::launcher {
namespace {

// Limit for squeue to answer.
constexpr absl::Duration kToolTimeout = absl::Seconds(10);
// Jobs with more nodes do not query squeue, to avoid overloading slurmctld.
constexpr int kMaxNodesForQueue = 64;

}  // namespace

std::unique_ptr<Command> QueryJobEnd(const LaunchConfig& config, EventLoop* loop, std::vector<std::string> environment,
                                     std::function<void(absl::Time)> on_end) {
  if (!config.cluster.batch) return nullptr;
  if (config.cluster.batch->end_time) {
    on_end(*config.cluster.batch->end_time);
    return nullptr;
  }
  if (config.settings.max_nodes() > kMaxNodesForQueue) return nullptr;
  absl::StatusOr<std::string> squeue = ResolveProgram("squeue", SearchPath());
  if (!squeue.ok()) return nullptr;
  const std::string job = config.cluster.batch->job;
  SpawnRequest request;
  request.program = *squeue;
  request.argv = {*squeue, "-h", "-j", job, "-o", "%A %e %l"};
  request.environment = std::move(environment);
  request.environment.emplace_back("SLURM_TIME_FORMAT=standard");
  absl::StatusOr<std::unique_ptr<Command>> command =
      Command::Run(loop, request, kToolTimeout, [job, on_end = std::move(on_end)](const std::string& answer) {
        const std::optional<absl::Time> end = ReadEndTime(answer, job, absl::LocalTimeZone());
        if (end) on_end(*end);
      });
  // The end time is optional: not a reason to fail.
  return command.ok() ? *std::move(command) : nullptr;
}

}  // namespace ddprun::launcher

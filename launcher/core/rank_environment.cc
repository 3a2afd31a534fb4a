#include "launcher/core/rank_environment.h"

#include <cassert>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "launcher/core/signal_list.h"
#include "worker_contract/environment.h"

namespace ddprun::launcher {
namespace {

namespace contract = worker_contract;

using Variables = std::vector<std::pair<absl::string_view, std::string>>;

absl::string_view NameOf(absl::string_view entry) { return entry.substr(0, entry.find('=')); }

Variables SetVariables(const rendezvous::Assignment& assignment, int local_rank, const GroupSettings& settings,
                       const std::string& error_file) {
  Variables variables = {
      {contract::kRank, absl::StrCat(assignment.base_rank + local_rank)},
      {contract::kLocalRank, absl::StrCat(local_rank)},
      {contract::kWorldSize, absl::StrCat(assignment.world_size)},
      {contract::kLocalWorldSize, absl::StrCat(settings.slots)},
      {contract::kGroupRank, absl::StrCat(assignment.group_rank)},
      {contract::kGroupWorldSize, absl::StrCat(assignment.group_world_size)},
      {contract::kRoleName, settings.role},
      {contract::kRoleRank, absl::StrCat(assignment.base_role_rank + local_rank)},
      {contract::kRoleWorldSize, absl::StrCat(assignment.role_world_size)},
      {contract::kMasterAddr, assignment.master_addr},
      {contract::kMasterPort, absl::StrCat(assignment.master_port)},
      {contract::kUseAgentStore, "True"},
      {contract::kRestartCount, absl::StrCat(assignment.restart_count)},
      {contract::kMaxRestarts, absl::StrCat(settings.max_restarts)},
      {contract::kRunId, settings.job_id},
      {contract::kErrorFile, error_file},
      {contract::kSignalsToHandle, SignalNames(settings.signals_to_handle)},
      {contract::kRound, absl::StrCat(assignment.round)},
      {contract::kLauncherId, settings.launcher_id},
      {contract::kStopGrace, absl::StrCat(absl::ToDoubleSeconds(settings.stop_grace))},
  };
  if (settings.job_end)
    variables.emplace_back(contract::kJobEndTime, absl::StrCat(absl::ToUnixSeconds(*settings.job_end)));
  return variables;
}

Variables Defaults(const GroupSettings& settings) {
  Variables defaults = {{contract::kNcclAsyncErrorHandling, "1"}};
  if (settings.slots > 1) defaults.emplace_back(contract::kOmpNumThreads, "1");
  return defaults;
}

}  // namespace

std::vector<std::string> RankEnvironment(const rendezvous::Assignment& assignment, int local_rank,
                                         const GroupSettings& settings, const std::string& error_file,
                                         absl::Span<const std::string> base) {
  assert(local_rank >= 0 && local_rank < settings.slots);
  const Variables set = SetVariables(assignment, local_rank, settings, error_file);
  absl::flat_hash_set<absl::string_view> taken;
  for (const auto& [name, value] : set) taken.insert(name);

  std::vector<std::string> environment;
  environment.reserve(base.size() + set.size() + 2);
  for (const std::string& entry : base) {
    const absl::string_view name = NameOf(entry);
    // Of a name that stands there twice, getenv finds the first: keep that one alone, as python's os.environ may not.
    if (absl::StartsWith(name, "PET_") || !taken.insert(name).second) continue;
    environment.push_back(entry);
  }
  for (const auto& [name, value] : set) environment.push_back(absl::StrCat(name, "=", value));
  for (const auto& [name, value] : Defaults(settings)) {
    if (!taken.contains(name)) environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

}  // namespace ddprun::launcher

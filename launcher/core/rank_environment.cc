#include "launcher/core/rank_environment.h"

#include <cassert>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/core/signal_list.h"
#include "worker_contract/environment.h"

namespace ddprun::launcher {
namespace {

namespace contract = worker_contract;

using Variables = std::vector<std::pair<absl::string_view, std::string>>;

constexpr char kPreload[] = "LD_PRELOAD";

absl::string_view NameOf(absl::string_view entry) { return entry.substr(0, entry.find('=')); }

// The value of LD_PRELOAD, once only: a launcher that was started by a worker of another inherits it.
std::string WithPortGuard(const std::string& guard, absl::Span<const std::string> base) {
  for (const std::string& entry : base) {
    if (NameOf(entry) != kPreload) continue;
    const absl::string_view inherited = absl::string_view(entry).substr(sizeof kPreload);
    std::vector<absl::string_view> libraries = {guard};
    for (absl::string_view library : absl::StrSplit(inherited, absl::ByAnyChar(" :"))) {
      if (library != guard && !library.empty()) libraries.push_back(library);
    }
    return absl::StrJoin(libraries, ":");
  }
  return guard;
}

Variables SetVariables(const rendezvous::Assignment& assignment, int local_rank, const GroupSettings& settings,
                       const std::string& error_file, absl::Span<const std::string> base) {
  Variables variables = {
      {contract::kRank, absl::StrCat(assignment.base_rank + local_rank)},
      {contract::kLocalRank, absl::StrCat(settings.devices.empty() ? local_rank : 0)},
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
  if (!settings.devices.empty()) variables.emplace_back("CUDA_VISIBLE_DEVICES", settings.devices[local_rank]);
  if (settings.job_end)
    variables.emplace_back(contract::kJobEndTime, absl::StrCat(absl::ToUnixSeconds(*settings.job_end)));
  if (settings.port_range) {
    variables.emplace_back(contract::kPortRange,
                           absl::StrCat(settings.port_range->ToString(), " except ", settings.reserved_port));
    variables.emplace_back(kPreload, WithPortGuard(settings.port_guard, base));
  }
  return variables;
}

Variables Defaults(const rendezvous::Assignment& assignment, const GroupSettings& settings) {
  Variables defaults = {{contract::kNcclAsyncErrorHandling, "1"}};
  if (settings.slots > 1) defaults.emplace_back(contract::kOmpNumThreads, "1");
  if (assignment.group_world_size > 1 && !settings.gloo_interface.empty()) {
    defaults.emplace_back(contract::kGlooInterface, settings.gloo_interface);
  }
  return defaults;
}

}  // namespace

std::vector<std::string> RankEnvironment(const rendezvous::Assignment& assignment, int local_rank,
                                         const GroupSettings& settings, const std::string& error_file,
                                         absl::Span<const std::string> base) {
  assert(local_rank >= 0 && local_rank < settings.slots);
  const Variables set = SetVariables(assignment, local_rank, settings, error_file, base);
  absl::flat_hash_set<absl::string_view> taken;
  for (const auto& [name, value] : set) taken.insert(name);

  std::vector<std::string> environment;
  environment.reserve(base.size() + set.size() + 3);
  for (const std::string& entry : base) {
    const absl::string_view name = NameOf(entry);
    // Of a name that stands there twice, getenv finds the first: keep that one alone, as python's os.environ may not.
    if (absl::StartsWith(name, "PET_") || !taken.insert(name).second) continue;
    environment.push_back(entry);
  }
  for (const auto& [name, value] : set) environment.push_back(absl::StrCat(name, "=", value));
  for (const auto& [name, value] : Defaults(assignment, settings)) {
    if (!taken.contains(name)) environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

}  // namespace ddprun::launcher

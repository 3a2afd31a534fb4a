#include "launcher/workers/rank_environment.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "launcher/config/flag_value.h"
#include "worker_contract/environment.h"

namespace ddprun::launcher {
namespace {

namespace contract = worker_contract;

using Variables = std::vector<std::pair<absl::string_view, std::string>>;

constexpr char kPreload[] = "LD_PRELOAD";

absl::string_view NameOf(absl::string_view entry) { return entry.substr(0, entry.find('=')); }

// True for a sanitizer's runtime library, which must be loaded first.
bool IsSanitizer(absl::string_view library) {
  const absl::string_view file = library.substr(library.rfind('/') + 1);
  static constexpr absl::string_view kNames[] = {"libasan.", "libhwasan.", "liblsan.", "libtsan.", "libclang_rt."};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [file](absl::string_view name) { return absl::StartsWith(file, name); });
}

// Returns the value of LD_PRELOAD without duplicates: a launcher that a worker of another launcher started inherits
// libraries that it adds itself.
std::string WithLibraries(std::vector<std::string> libraries, absl::Span<const std::string> base) {
  static const absl::ByAnyChar kSeparator(" :");
  for (const std::string& entry : base) {
    if (NameOf(entry) != kPreload) continue;
    for (absl::string_view library : absl::StrSplit(absl::string_view(entry).substr(sizeof kPreload), kSeparator)) {
      if (library.empty() || std::find(libraries.begin(), libraries.end(), library) != libraries.end()) continue;
      libraries.emplace_back(library);
    }
    break;
  }
  std::stable_partition(libraries.begin(), libraries.end(), IsSanitizer);
  return absl::StrJoin(libraries, ":");
}

// Variables shared by all workers in all rounds.
Variables CommonVariables(const LaunchConfig& config, const LauncherFacts& facts, absl::Span<const std::string> base) {
  Variables variables = {
      {contract::kLocalWorldSize, absl::StrCat(config.slots)},
      {contract::kRoleName, config.options.role},
      {contract::kUseAgentStore, "True"},
      {contract::kMaxRestarts, absl::StrCat(config.settings.max_restarts())},
      {contract::kRunId, config.job_id},
      {contract::kSignalsToHandle, SignalNames(config.options.signals_to_handle)},
      {contract::kLauncherId, facts.launcher_ids},
      {contract::kWorkerLink, facts.worker_link},
      {contract::kStopGrace, absl::StrCat(absl::ToDoubleSeconds(config.shutdown_timeout))},
  };
  if (config.options.port_range) {
    variables.emplace_back(contract::kPortRange,
                           absl::StrCat(config.options.port_range->ToString(), " except ", config.endpoint.port));
  }
  if (!facts.preloaded.empty()) variables.emplace_back(kPreload, WithLibraries(facts.preloaded, base));
  return variables;
}

Variables CommonDefaults(const LaunchConfig& config, const LauncherFacts& facts) {
  Variables defaults = {{contract::kNcclAsyncErrorHandling, contract::kNcclErrorsEndTheWorker}};
  if (config.slots > 1) defaults.emplace_back(contract::kOmpNumThreads, "1");
  // Set even in a round of one node, because workers may outlive it.
  if (!facts.gloo_interface.empty()) defaults.emplace_back(contract::kGlooInterface, facts.gloo_interface);
  return defaults;
}

// Variables of one worker in one round.
Variables RankVariables(const rendezvous::Assignment& assignment, int local_rank, const LaunchConfig& config,
                        const LauncherFacts& facts, const std::string& error_file) {
  Variables variables = {
      {contract::kRank, absl::StrCat(assignment.base_rank() + local_rank)},
      {contract::kLocalRank, absl::StrCat(config.devices.empty() ? local_rank : 0)},
      {contract::kWorldSize, absl::StrCat(assignment.world_size())},
      {contract::kGroupRank, absl::StrCat(assignment.group_rank())},
      {contract::kGroupWorldSize, absl::StrCat(assignment.group_world_size())},
      {contract::kRoleRank, absl::StrCat(assignment.base_role_rank() + local_rank)},
      {contract::kRoleWorldSize, absl::StrCat(assignment.role_world_size())},
      {contract::kMasterAddr, assignment.master_addr()},
      {contract::kMasterPort, absl::StrCat(assignment.master_port())},
      {contract::kRestartCount, absl::StrCat(assignment.restart_count())},
      {contract::kErrorFile, error_file},
      {contract::kRound, absl::StrCat(assignment.round())},
  };
  for (const std::string& name : config.accelerators.variables) {
    if (!config.devices.empty()) variables.emplace_back(name, config.devices[local_rank]);
  }
  if (facts.job_end) {
    variables.emplace_back(contract::kJobEndTime, absl::StrCat(absl::ToUnixSeconds(*facts.job_end)));
  }
  return variables;
}

// Merges `base` without PET_ variables, `set`, which takes precedence over `base`, and `defaults`, which do not
// override either.
std::vector<std::string> Merge(absl::Span<const std::string> base, const Variables& set, const Variables& defaults) {
  absl::flat_hash_set<absl::string_view> taken;
  for (const auto& [name, value] : set) taken.insert(name);
  std::vector<std::string> environment;
  environment.reserve(base.size() + set.size() + defaults.size());
  for (const std::string& entry : base) {
    const absl::string_view name = NameOf(entry);
    // If a name occurs twice, getenv finds the first; keep only that one, because Python's os.environ may use the
    // other.
    if (absl::StartsWith(name, "PET_") || !taken.insert(name).second) continue;
    environment.push_back(entry);
  }
  for (const auto& [name, value] : set) environment.push_back(absl::StrCat(name, "=", value));
  for (const auto& [name, value] : defaults) {
    if (!taken.contains(name)) environment.push_back(absl::StrCat(name, "=", value));
  }
  return environment;
}

// Variables of a single worker. A launcher that runs as a worker inherits them, but its own workers must not.
constexpr const char* kRankVariables[] = {
    contract::kRank,           contract::kLocalRank,    contract::kWorldSize,     contract::kGroupRank,
    contract::kGroupWorldSize, contract::kRoleRank,     contract::kRoleWorldSize, contract::kMasterAddr,
    contract::kMasterPort,     contract::kRestartCount, contract::kErrorFile,     contract::kRound,
};

}  // namespace

std::vector<std::string> RankEnvironment(const rendezvous::Assignment& assignment, int local_rank,
                                         const LaunchConfig& config, const LauncherFacts& facts,
                                         const std::string& error_file, absl::Span<const std::string> base) {
  assert(local_rank >= 0 && local_rank < config.slots);
  Variables set = RankVariables(assignment, local_rank, config, facts, error_file);
  for (auto& variable : CommonVariables(config, facts, base)) set.push_back(std::move(variable));
  return Merge(base, set, CommonDefaults(config, facts));
}

worker_contract::LinkReForm ReformLine(const rendezvous::Assignment& assignment, int local_rank, int slots) {
  worker_contract::LinkReForm line;
  line.round = assignment.round();
  line.rank = assignment.base_rank() + local_rank;
  line.world_size = assignment.world_size();
  line.local_world_size = slots;
  line.group_rank = assignment.group_rank();
  line.group_world_size = assignment.group_world_size();
  line.role_rank = assignment.base_role_rank() + local_rank;
  line.role_world_size = assignment.role_world_size();
  line.master_addr = assignment.master_addr();
  line.master_port = assignment.master_port();
  line.restart_count = assignment.restart_count();
  if (assignment.has_state_source()) line.state_source = assignment.state_source();
  if (assignment.has_state_step()) line.state_step = assignment.state_step();
  return line;
}

std::vector<std::string> CommonEnvironment(const LaunchConfig& config, const LauncherFacts& facts,
                                           absl::Span<const std::string> base) {
  std::vector<std::string> environment =
      Merge(base, CommonVariables(config, facts, base), CommonDefaults(config, facts));
  const auto of_one_rank = [](const std::string& entry) {
    return std::find(std::begin(kRankVariables), std::end(kRankVariables), NameOf(entry)) != std::end(kRankVariables);
  };
  environment.erase(std::remove_if(environment.begin(), environment.end(), of_one_rank), environment.end());
  return environment;
}

}  // namespace ddprun::launcher

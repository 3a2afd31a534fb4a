#include "worker_runtime/spawn/spawn_environment.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker_contract/environment.h"

namespace ddprun {
namespace {

namespace contract = worker_contract;

bool IsSet(const std::vector<std::string>& environment, absl::string_view name) {
  return std::any_of(environment.begin(), environment.end(),
                     [&](const std::string& entry) { return absl::StartsWith(entry, absl::StrCat(name, "=")); });
}

}  // namespace

std::string SpawnMark::Text() const { return absl::StrCat(call, ":", parent, ":", error_fd); }

std::optional<SpawnMark> SpawnMark::FromText(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  SpawnMark mark;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &mark.call) || !absl::SimpleAtoi(parts[1], &mark.parent) ||
      !absl::SimpleAtoi(parts[2], &mark.error_fd) || mark.call < 1 || mark.parent < 1 || mark.error_fd < 0) {
    return std::nullopt;
  }
  return mark;
}

std::string ErrorFileOf(int error_fd) { return absl::StrCat("/proc/self/fd/", error_fd); }

std::vector<std::string> EnvironmentOf(const SpawnedWorker& worker, const std::vector<std::string>& parents) {
  const std::pair<const char*, std::string> own[] = {
      {contract::kRank, absl::StrCat(worker.rank)},
      {contract::kWorldSize, absl::StrCat(worker.nprocs)},
      {contract::kLocalRank, absl::StrCat(worker.rank)},
      {contract::kLocalWorldSize, absl::StrCat(worker.nprocs)},
      {contract::kGroupRank, "0"},
      {contract::kGroupWorldSize, "1"},
      {contract::kMasterAddr, "127.0.0.1"},
      {contract::kMasterPort, absl::StrCat(worker.store_port)},
      {contract::kUseAgentStore, "True"},
      {contract::kErrorFile, ErrorFileOf(worker.mark.error_fd)},
      {kSpawnVariable, worker.mark.Text()},
  };
  const char* const foreign[] = {contract::kRoleName,     contract::kRoleRank,    contract::kRoleWorldSize,
                                 contract::kRestartCount, contract::kMaxRestarts, contract::kRunId,
                                 contract::kRound,        contract::kLauncherId,  contract::kWorkerLink};
  std::vector<std::string> environment;
  for (const std::string& entry : parents) {
    const absl::string_view name = absl::string_view(entry).substr(0, entry.find('='));
    const bool replaced = std::any_of(std::begin(own), std::end(own), [&](const auto& o) { return o.first == name; });
    if (!replaced && std::find(std::begin(foreign), std::end(foreign), name) == std::end(foreign)) {
      environment.push_back(entry);
    }
  }
  for (const auto& [name, value] : own) environment.push_back(absl::StrCat(name, "=", value));
  // Several processes with one thread per core each would compete for the cores.
  if (worker.nprocs > 1 && !IsSet(environment, contract::kOmpNumThreads)) {
    environment.push_back(absl::StrCat(contract::kOmpNumThreads, "=1"));
  }
  return environment;
}

}  // namespace ddprun

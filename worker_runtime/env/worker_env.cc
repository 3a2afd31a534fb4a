#include "worker_runtime/env/worker_env.h"

#include <stdlib.h>

#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker_contract/environment.h"

namespace ddprun {
namespace {

namespace contract = worker_contract;

constexpr int kMaxPort = 65535;

// Reads variables one after another and keeps the first error.
class Reader {
 public:
  explicit Reader(WorkerEnv::Lookup lookup) : lookup_(lookup) {}

  std::string Text(const char* name) { return lookup_(name).value_or(""); }
  bool Has(const char* name) { return !Text(name).empty(); }

  // The variable's value, within [low, high]; `absent` if it is not set.
  template <typename Number>
  Number Get(const char* name, Number absent, Number low, Number high) {
    const std::string text = Text(name);
    if (text.empty()) return absent;
    Number value = 0;
    if (absl::SimpleAtoi(text, &value) && value >= low && value <= high) return value;
    Fail(high == std::numeric_limits<Number>::max()
             ? absl::StrCat(name, "=", text, ": must be an integer of at least ", low)
             : absl::StrCat(name, "=", text, ": must be an integer from ", low, " to ", high));
    return absent;
  }
  int Count(const char* name, int absent, int low) { return Get(name, absent, low, std::numeric_limits<int>::max()); }

  bool Flag(const char* name) {
    const std::string text = absl::AsciiStrToLower(Text(name));
    if (text != "" && text != "true" && text != "false" && text != "1" && text != "0") {
      Fail(absl::StrCat(name, "=", Text(name), ": must be True or False"));
    }
    return text == "true" || text == "1";
  }

  void Fail(const std::string& message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(message);
  }
  const absl::Status& status() const { return status_; }

 private:
  WorkerEnv::Lookup lookup_;
  absl::Status status_;
};

constexpr char kVariablesHint[] =
    "; ddprun and torchrun set all of these variables, a program started by hand needs none";

void ReadJob(Reader& reader, WorkerEnv& env) {
  env.agent_store = reader.Flag(contract::kUseAgentStore);
  env.restart_count = reader.Count(contract::kRestartCount, 0, 0);
  env.max_restarts = reader.Count(contract::kMaxRestarts, 0, 0);
  env.run_id = reader.Text(contract::kRunId);
  env.error_file = reader.Text(contract::kErrorFile);
  env.round = reader.Get<uint64_t>(contract::kRound, 0, 0, std::numeric_limits<uint64_t>::max());
}

void ReadWorld(Reader& reader, WorkerEnv& env) {
  if (!reader.Has(contract::kRank) || !reader.Has(contract::kWorldSize)) {
    const bool rank_is_set = reader.Has(contract::kRank);
    const char* const set = rank_is_set ? contract::kRank : contract::kWorldSize;
    const char* const missing = rank_is_set ? contract::kWorldSize : contract::kRank;
    return reader.Fail(absl::StrCat(missing, " is not set, but ", set, "=", reader.Text(set), " is", kVariablesHint));
  }
  env.world_size = reader.Count(contract::kWorldSize, 1, 1);
  if (!reader.status().ok()) return;
  env.rank = reader.Get(contract::kRank, 0, 0, env.world_size - 1);
}

void ReadNode(Reader& reader, WorkerEnv& env) {
  env.group_world_size = reader.Get(contract::kGroupWorldSize, 1, 1, env.world_size);
  if (!reader.status().ok()) return;
  env.group_rank = reader.Get(contract::kGroupRank, 0, 0, env.group_world_size - 1);
  if (env.group_world_size > 1) {
    for (const char* name : {contract::kLocalRank, contract::kLocalWorldSize}) {
      if (reader.Has(name)) continue;
      return reader.Fail(absl::StrCat(name, " is not set; it is required because ", contract::kGroupWorldSize, "=",
                                      env.group_world_size));
    }
  }
  env.local_world_size = reader.Get(contract::kLocalWorldSize, env.world_size, 1, env.world_size);
  if (!reader.status().ok()) return;
  const int local_rank = env.local_world_size == env.world_size ? env.rank : env.rank % env.local_world_size;
  env.local_rank = reader.Get(contract::kLocalRank, local_rank, 0, env.local_world_size - 1);
}

void ReadStoreAddress(Reader& reader, WorkerEnv& env) {
  env.master_addr = reader.Text(contract::kMasterAddr);
  env.master_port = reader.Get(contract::kMasterPort, 0, 1, kMaxPort);
  if (env.world_size == 1) return;
  for (const char* name : {contract::kMasterAddr, contract::kMasterPort}) {
    if (reader.Has(name)) continue;
    return reader.Fail(absl::StrCat(name, " is not set; the ", env.world_size,
                                    " workers of this job need it to find each other", kVariablesHint));
  }
}

}  // namespace

absl::StatusOr<WorkerEnv> WorkerEnv::FromVariables(Lookup lookup) {
  Reader reader(lookup);
  WorkerEnv env;
  env.launched_ = reader.Has(contract::kRank) || reader.Has(contract::kWorldSize);
  ReadJob(reader, env);
  if (env.launched_) {
    for (auto read : {ReadWorld, ReadNode, ReadStoreAddress}) {
      if (reader.status().ok()) read(reader, env);
    }
  }
  if (!reader.status().ok()) return reader.status();
  return env;
}

absl::StatusOr<WorkerEnv> WorkerEnv::FromEnvironment() {
  return FromVariables([](const char* name) -> std::optional<std::string> {
    const char* const value = getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

}  // namespace ddprun

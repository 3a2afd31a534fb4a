#include "worker_runtime/process_group/env_from_ranks.h"

#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "worker_runtime/base/torch_try.h"

namespace ddprun {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
// Rank 0's text: the host and the port, or this prefix and the reason why there is no store.
constexpr char kError[] = "error: ";

absl::Status CheckRanks(const AssignedRanks& ranks) {
  const auto check = [](const char* name, int rank, int size) {
    if (size >= 1 && rank >= 0 && rank < size) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, "=", rank, " of ", size, ": must be from 0 to size - 1"));
  };
  DDPRUN_RETURN_IF_ERROR(check("rank", ranks.rank, ranks.world_size));
  DDPRUN_RETURN_IF_ERROR(check("local rank", ranks.local_rank, ranks.local_world_size));
  if (ranks.local_world_size <= ranks.world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("local world size ", ranks.local_world_size, " is larger than the world size ", ranks.world_size));
}

// Hosts a store on a free port until the process ends, because other ranks may need it longer than rank 0's group
// exists. Returns the port.
absl::StatusOr<int> HostStore(const std::string& host, absl::Duration timeout) {
  static Mutex* const mutex = new Mutex;
  static auto* const hosted = new std::vector<c10::intrusive_ptr<c10d::TCPStore>>;
  int port = 0;
  DDPRUN_RETURN_IF_ERROR(TorchTry("rank 0 can't host the store", [&] {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    options.timeout = absl::ToChronoMilliseconds(timeout);
    auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
    port = store->getPort();
    MutexLock lock(mutex);
    hosted->push_back(std::move(store));
    return absl::OkStatus();
  }));
  return port;
}

}  // namespace

absl::StatusOr<WorkerEnv> EnvFromRanks(const AssignedRanks& ranks, BroadcastFromRankZero broadcast,
                                       absl::Duration timeout) {
  DDPRUN_RETURN_IF_ERROR(CheckRanks(ranks));
  WorkerEnv env;
  env.rank = ranks.rank;
  env.world_size = ranks.world_size;
  env.local_rank = ranks.local_rank;
  env.local_world_size = ranks.local_world_size;
  if (env.world_size == 1) return env;
  env.agent_store = true;  // hosted outside of the group: rank 0 is a client like the others
  std::string text;
  if (env.rank == 0) {
    const std::string host = env.local_world_size == env.world_size ? kLoopback : Hostname();
    const absl::StatusOr<int> port = HostStore(host, timeout);
    text = port.ok() ? absl::StrCat(host, " ", *port) : absl::StrCat(kError, port.status().message());
  }
  DDPRUN_ASSIGN_OR_RETURN(text, broadcast(std::move(text)));
  if (absl::StartsWith(text, kError)) return absl::UnavailableError(text.substr(sizeof kError - 1));
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  if (words.size() != 2 || !absl::SimpleAtoi(words[1], &env.master_port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", env.rank, ": the broadcast returned \"", text, "\" instead of rank 0's text"));
  }
  env.master_addr = words[0];
  return env;
}

}  // namespace ddprun

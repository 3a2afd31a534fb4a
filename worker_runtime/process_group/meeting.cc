#include "worker_runtime/process_group/meeting.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/socket_address.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/process_group/cancellable.h"
#include "worker_runtime/process_group/tcp_sockets.h"

namespace ddprun {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
// Reserved for documentation (RFC 5737), so it lies behind the default route. Nothing is sent there.
constexpr char kRemoteTestAddress[] = "192.0.2.1";

// Tombstone value for a rank that timed out, and the offset that is then added to its join counter.
constexpr char kTombstone[] = "?";
constexpr int64_t kTombstoneOffset = 1 << 20;

// How long one connection attempt waits for the store before checking for cancellation; c10d waits twice.
constexpr absl::Duration kConnectOnce = absl::Milliseconds(400);

// A store that answers no request for this long is considered dead. Long enough for a busy host.
constexpr absl::Duration kAnswer = absl::Seconds(10);

// How long the store's host waits for the others to read why it gave up.
constexpr absl::Duration kReportWait = absl::Seconds(1);

std::string PortsKey(int rank) { return absl::StrCat("ports/", rank); }
std::string JoinCountKey(int rank) { return absl::StrCat("taken/", rank); }

c10d::TCPStoreOptions StoreOptions(const WorkerEnv& env, absl::Duration timeout, bool host) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(env.master_port);
  options.isServer = host;
  options.waitWorkers = false;
  options.timeout = absl::ToChronoMilliseconds(timeout);
  return options;
}

// TorchTry without logs of c10d's sockets: they would print, with a C++ stack, an error that we return.
absl::Status QuietTry(absl::FunctionRef<void()> body) {
  const QuietLog quiet;
  return TorchTry("", [&] {
    body();
    return absl::OkStatus();
  });
}

absl::Status StoreNotReached(const WorkerEnv& env, absl::Duration timeout, const absl::Status& thrown) {
  const std::string address = absl::StrCat(env.master_addr, ":", env.master_port);
  // c10d reports a name that does not resolve only as a timeout.
  const absl::Status route = LocalAddressTowards(env.master_addr, env.master_port).status();
  const bool late = absl::IsDeadlineExceeded(thrown);
  const std::string why = !route.ok() ? absl::StrCat(": ", route.message())
                          : late      ? ""
                                      : absl::StrCat(": ", thrown.message());
  const std::string what =
      late ? absl::StrCat("timed out after ", absl::FormatDuration(timeout), " connecting") : "can't connect";
  return absl::Status(
      thrown.code(),
      absl::StrCat("rank ", env.rank, ": ", what, " to the store at ", address, why,
                   "; check MASTER_ADDR and MASTER_PORT, and that ",
                   env.agent_store ? "the launcher of node 0 (under MPI: rank 0)" : "rank 0", " is running"));
}

bool IsConnectedTo(int port, const TcpSocket& socket) {
  return !socket.listening && PortOfAddress(socket.remote) == port;
}

c10::intrusive_ptr<c10d::Store> WithoutPrefix(const c10::intrusive_ptr<c10d::Store>& store) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get());
  return prefixed == nullptr ? store : prefixed->getUnderlyingNonPrefixStore();
}

// Hosts the store of this port, once per process.
absl::Status HostStore(const WorkerEnv& env, absl::Duration timeout) {
  static Mutex* const mutex = new Mutex;
  static auto* const hosted = new std::map<int, c10::intrusive_ptr<c10d::TCPStore>>;
  MutexLock lock(mutex);
  if (hosted->contains(env.master_port)) return absl::OkStatus();
  return TorchTry(absl::StrCat("rank 0 can't host the store on port ", env.master_port), [&] {
    (*hosted)[env.master_port] =
        c10::make_intrusive<c10d::TCPStore>(env.master_addr, StoreOptions(env, timeout, /*host=*/true));
    return absl::OkStatus();
  });
}

std::vector<std::string> Keys(absl::string_view kind, int size) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size; ++rank) keys.push_back(absl::StrCat(kind, "/", rank));
  return keys;
}

// Waits for all of `keys` and returns the ranks that did not set theirs in time. Other errors are exceptions.
std::vector<int> WaitForAll(c10d::Store& store, const std::vector<std::string>& keys, absl::Duration timeout) {
  // A wait that times out throws, like a lost connection; only the code tells them apart.
  const absl::Status wait = TorchTry("", [&] {
    store.wait(keys, absl::ToChronoMilliseconds(timeout));
    return absl::OkStatus();
  });
  std::vector<int> missing;
  if (wait.ok()) return missing;
  // Throws the store's error if the store is lost.
  for (size_t rank = 0; rank < keys.size(); ++rank) {
    if (!store.check({keys[rank]})) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

absl::Status RanksDidNotJoin(const std::vector<int>& missing, int size, absl::Duration timeout) {
  return absl::DeadlineExceededError(absl::StrCat(
      "timed out after ", absl::FormatDuration(timeout), " waiting for ", Peers().Names(missing), "; ",
      size - missing.size(), " of ", size, " joined; are all ranks started, with the same address and world size?"));
}

// Returns the values of keys that exist.
std::vector<std::string> ReadAll(c10d::Store& store, const std::vector<std::string>& keys) {
  std::vector<std::vector<uint8_t>> values;
  if (store.hasExtendedApi()) {
    values = store.multiGet(keys);
  } else {
    for (const std::string& key : keys) values.push_back(store.get(key));
  }
  std::vector<std::string> texts;
  for (const std::vector<uint8_t>& value : values) texts.emplace_back(value.begin(), value.end());
  return texts;
}

absl::StatusOr<Peers> ReadPeers(c10d::Store& store, const std::vector<std::string>& keys, absl::Duration timeout) {
  const std::vector<std::string> values = ReadAll(store, keys);
  std::vector<Peer> peers;
  std::vector<int> missing;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    const std::string& value = values[rank];
    DDPRUN_ASSIGN_OR_RETURN(Peer peer, value == kTombstone ? Peer() : Peer::Decode(value));
    if (value == kTombstone) missing.push_back(static_cast<int>(rank));
    peers.push_back(peer);
  }
  if (!missing.empty()) return RanksDidNotJoin(missing, static_cast<int>(keys.size()), timeout);
  return Peers(std::move(peers));
}

}  // namespace

absl::StatusOr<c10::intrusive_ptr<c10d::Store>> ConnectToStore(const WorkerEnv& env, absl::Duration timeout,
                                                               std::stop_token cancel) {
  if (env.world_size == 1) return c10::intrusive_ptr<c10d::Store>(c10::make_intrusive<c10d::HashStore>());
  if (env.master_addr.empty() || env.master_port <= 0) {
    return absl::InvalidArgumentError("MASTER_ADDR and MASTER_PORT are required for more than one rank");
  }
  if (env.rank == 0 && !env.agent_store) DDPRUN_RETURN_IF_ERROR(HostStore(env, timeout));
  c10::intrusive_ptr<c10d::Store> store;
  // c10d's wait for an answer can't be interrupted.
  const absl::Duration once = cancel.stop_possible() ? std::min(timeout, kConnectOnce) : timeout;
  const SteadyTime deadline = SteadyNow() + timeout;
  absl::Status status;
  do {
    status = QuietTry([&] {
      store = c10::make_intrusive<c10d::TCPStore>(env.master_addr, StoreOptions(env, once, /*host=*/false));
      store->setTimeout(absl::ToChronoMilliseconds(timeout));
    });
  } while (absl::IsDeadlineExceeded(status) && SteadyNow() < deadline && !cancel.stop_requested());
  if (!status.ok()) return StoreNotReached(env, timeout, status);
  LimitSilenceOfTcpSockets([&](const TcpSocket& s) { return IsConnectedTo(env.master_port, s); });
  return store;
}

c10::intrusive_ptr<c10d::Store> SecondConnection(const c10::intrusive_ptr<c10d::Store>& store) {
  const auto* const tcp = dynamic_cast<c10d::TCPStore*>(WithoutPrefix(store).get());
  const auto is_store = [&](const TcpSocket& s) { return IsConnectedTo(tcp->getPort(), s); };
  const std::vector<TcpSocket> first = tcp == nullptr ? std::vector<TcpSocket>() : FindTcpSockets(is_store);
  c10::intrusive_ptr<c10d::Store> second = store;
  const absl::Status status = QuietTry([&] { second = store->clone(); });
  if (!status.ok()) return store;
  if (tcp == nullptr) return second;
  LimitSilenceOfTcpSockets(is_store);
  LimitReadsOfTcpSockets([&](const TcpSocket& s) { return is_store(s) && !absl::c_linear_search(first, s); }, kAnswer);
  return second;
}

std::string AddressForPeers(const c10::intrusive_ptr<c10d::Store>& store, bool several_hosts) {
  const c10::intrusive_ptr<c10d::Store> base = WithoutPrefix(store);
  if (dynamic_cast<c10d::HashStore*>(base.get()) != nullptr) return kLoopback;
  if (const auto* const tcp = dynamic_cast<c10d::TCPStore*>(base.get())) {
    absl::StatusOr<std::string> address = LocalAddressTowards(tcp->getHost(), tcp->getPort());
    if (address.ok() && !(several_hosts && IsLoopbackAddress(*address))) return *address;
  }
  return LocalAddressTowards(kRemoteTestAddress, 1).value_or(kLoopback);
}

Peer ThisProcess() { return {.host = Hostname(), .pid = getpid()}; }

absl::StatusOr<Peers> Meet(c10d::Store& store, int rank, int size, const Peer& self, absl::Duration timeout,
                           bool hosts_store) {
  const std::vector<std::string> keys = Keys("rank", size);
  absl::StatusOr<Peers> peers = Peers();
  DDPRUN_RETURN_IF_ERROR(TorchTry("the store", [&]() -> absl::Status {
    const int64_t came = store.add(JoinCountKey(rank), 1);
    if (came > kTombstoneOffset)
      return absl::DeadlineExceededError("joined too late: the other ranks timed out waiting for this rank");
    if (came > 1) {
      return absl::InvalidArgumentError(
          "another process has already joined as this rank: do two processes have the same RANK, or was this group "
          "name used before?");
    }
    store.set(keys[rank], self.Encode());
    for (const int missing : WaitForAll(store, keys, timeout)) {
      // Wakes ranks that still wait for it.
      store.add(JoinCountKey(missing), kTombstoneOffset);
      store.set(keys[missing], kTombstone);
    }
    peers = ReadPeers(store, keys, timeout);
    if (peers.ok()) return absl::OkStatus();
    store.set(absl::StrCat("heard/", rank), "");
    if (hosts_store) WaitForAll(store, Keys("heard", size), kReportWait);
    return peers.status();
  }));
  return peers;
}

absl::Status AwaitConnections(c10d::Store& store, int rank, const Peers& peers, absl::Span<const int> ports,
                              absl::Duration timeout) {
  const std::vector<std::string> keys = Keys("ports", peers.size());
  return TorchTry("the store", [&]() -> absl::Status {
    store.set(keys[rank], absl::StrJoin(ports, ","));
    const std::vector<int> missing = WaitForAll(store, keys, timeout);
    if (missing.empty()) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(
        peers.Names(missing), " could not connect to all other ranks within ", absl::FormatDuration(timeout)));
  });
}

std::optional<int> RankOfPort(c10d::Store& store, const Peers& peers, absl::Span<const std::string> addresses) {
  std::set<std::string> hosts;
  std::set<int> ports;
  for (const std::string& address : addresses) {
    hosts.insert(HostOfAddress(address));
    ports.insert(PortOfAddress(address));
  }
  std::vector<int> candidates;
  std::vector<std::string> keys;
  for (int rank = 0; rank < peers.size(); ++rank) {
    if (!hosts.contains(HostOfAddress(peers[rank].address))) continue;
    candidates.push_back(rank);
    keys.push_back(PortsKey(rank));
  }
  if (keys.empty() || !store.check(keys)) return std::nullopt;
  const std::vector<std::string> announced = ReadAll(store, keys);
  for (size_t i = 0; i < candidates.size(); ++i) {
    for (absl::string_view text : absl::StrSplit(announced[i], ',')) {
      int port = 0;
      if (absl::SimpleAtoi(text, &port) && ports.contains(port)) return candidates[i];
    }
  }
  return std::nullopt;
}

}  // namespace ddprun

#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_MEETING_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_MEETING_H_

#include <c10/util/intrusive_ptr.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker_runtime/env/worker_env.h"
#include "worker_runtime/process_group/peers.h"

namespace c10d {
class Store;
}  // namespace c10d

// How the ranks of a group find each other.
namespace ddprun {

// A connection to the store at MASTER_ADDR:MASTER_PORT. Rank 0 hosts it if no launcher does, until its process ends:
// others may need it a little longer than rank 0's group lives. A world of one gets a store in memory.
// Errors: InvalidArgument without an address; Unavailable or DeadlineExceeded if it can't be hosted or reached.
absl::StatusOr<c10::intrusive_ptr<c10d::Store>> ConnectToStore(const WorkerEnv& env, absl::Duration timeout);

// A second connection to the same store, with the same prefix; `store` itself if its kind has no such thing.
c10::intrusive_ptr<c10d::Store> SecondConnection(const c10::intrusive_ptr<c10d::Store>& store);

// The address on which Gloo should listen if the user has not said: the one from which the store's host is reached.
// With `several_hosts` never one of the loopback interface, as which many a host's own name resolves.
std::string AddressForPeers(const c10::intrusive_ptr<c10d::Store>& store, bool several_hosts);

// Host name and process id of this process.
Peer ThisProcess();

// Tells `self` to the other ranks and waits until all have come. `store` must be fresh: its keys belong to this group.
// A rank that gives up tells the others, and those that come later; with `hosts_store` it waits for a moment until they
// know.
// Errors: DeadlineExceeded names the ranks that have not come; InvalidArgument if somebody has come as this rank
// before; Unavailable if the store is gone.
absl::StatusOr<Peers> Meet(c10d::Store& store, int rank, int size, const Peer& self, absl::Duration timeout,
                           bool hosts_store = false);

// Says that this rank has connected to all others, from these ports, and waits until all have: otherwise one that fails
// at once would break the connections that others are still making.
// Errors: DeadlineExceeded names the ranks that could not connect; Unavailable if the store is gone.
absl::Status AwaitConnections(c10d::Store& store, int rank, const Peers& peers, absl::Span<const int> ports,
                              absl::Duration timeout);

// The rank that said that it has connected from one of `ports`; nullopt if none did.
std::optional<int> RankOfPort(c10d::Store& store, int size, absl::Span<const int> ports);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_MEETING_H_

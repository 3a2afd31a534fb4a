#ifndef DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_MEETING_H_
#define DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_MEETING_H_

#include <c10/util/intrusive_ptr.h>

#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "worker_runtime/env/worker_env.h"
#include "worker_runtime/process_group/peers.h"

namespace c10d {
class Store;
}  // namespace c10d

// Rendezvous of a group's ranks through the store.
namespace ddprun {

// Connects to the store at MASTER_ADDR:MASTER_PORT. Rank 0 hosts it if no launcher does, until its process ends,
// because other ranks may need it slightly longer than rank 0's group exists. A world of one gets an in-memory store.
// Errors: InvalidArgument without an address; Unavailable or DeadlineExceeded, with a hint, if the store can't be
// hosted or reached. LibTorch logs nothing meanwhile, unless TORCH_CPP_LOG_LEVEL is set. `cancel` ends the wait for a
// store that does not answer.
absl::StatusOr<c10::intrusive_ptr<c10d::Store>> ConnectToStore(const WorkerEnv& env, absl::Duration timeout,
                                                               std::stop_token cancel = {});

// Opens a second connection to the same store, with the same prefix; returns `store` itself if its type does not
// support that. If the store's process is stopped, calls on the second connection fail after ten seconds; it must not
// be used after that.
c10::intrusive_ptr<c10d::Store> SecondConnection(const c10::intrusive_ptr<c10d::Store>& store);

// Returns the default listening address for Gloo: the source address of the route to the store's host. With
// `several_hosts` it is never a loopback address, although many hosts' own names resolve to one.
std::string AddressForPeers(const c10::intrusive_ptr<c10d::Store>& store, bool several_hosts);

// Host name and process id of this process.
Peer ThisProcess();

// Publishes `self` to the other ranks and waits until all have joined. `store` must be new: its keys belong to this
// group. A rank that times out informs the others, including those that join later; with `hosts_store` it also waits
// briefly until they have read it.
// Errors: DeadlineExceeded names the ranks that did not join; InvalidArgument if another process has already joined as
// this rank; Unavailable if the store is lost.
absl::StatusOr<Peers> Meet(c10d::Store& store, int rank, int size, const Peer& self, absl::Duration timeout,
                           bool hosts_store = false);

// Announces that this rank has connected to all others, from these ports, and waits until all ranks have. Without this
// wait, a rank that fails immediately would break connections that others are still establishing.
// Errors: DeadlineExceeded names the ranks that could not connect; Unavailable if the store is lost.
absl::Status AwaitConnections(c10d::Store& store, int rank, const Peers& peers, absl::Span<const int> ports,
                              absl::Duration timeout);

// Returns the rank that announced the port of one of `addresses` ("ip:port") and listens on the same host; nullopt if
// there is none. Takes one request, for the ranks of that host only.
std::optional<int> RankOfPort(c10d::Store& store, const Peers& peers, absl::Span<const std::string> addresses);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_PROCESS_GROUP_MEETING_H_

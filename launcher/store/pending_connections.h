#ifndef DDPRUN_LAUNCHER_STORE_PENDING_CONNECTIONS_H_
#define DDPRUN_LAUNCHER_STORE_PENDING_CONNECTIONS_H_

#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/store/key_value.h"

namespace ddprun::launcher {

// Connections that are not served yet: no complete request has arrived, or no node of the round has registered their
// address so far. All have the same time limit. Also limits the number of connections of strangers, those from
// unregistered addresses. Pure; not thread-safe. All methods except Of() are O(1).
class PendingConnections {
 public:
  struct Limits {
    absl::Duration patience = absl::Seconds(10);
    size_t strangers = 1024;
    size_t strangers_of_address = 128;
  };

  explicit PendingConnections(const Limits& limits) : limits_(limits) {}

  // `stranger`: the address, empty for a connection of a node or of this host. False, and nothing is added, if this
  // address has too many.
  bool Add(ClientId id, absl::string_view stranger, SteadyTime now);
  // Removes a connection that is served or closed. No-op if it is not pending.
  void Remove(ClientId id);

  // The oldest stranger, if there are too many of them: close it.
  std::optional<ClientId> Surplus() const;
  // A connection that has exceeded its time limit: close it.
  std::optional<ClientId> Expired(SteadyTime now) const;
  SteadyTime NextDeadline() const;
  // Strangers' connections from this address, oldest first.
  std::vector<ClientId> Of(absl::string_view address) const;

 private:
  struct Pending {
    ClientId id = 0;
    SteadyTime until;
    std::string stranger;
  };
  using Line = std::list<Pending>;

  const Limits limits_;
  Line nodes_;  // both oldest first
  Line strangers_;
  absl::flat_hash_map<ClientId, Line::iterator> by_id_;
  absl::flat_hash_map<std::string, size_t> of_address_;  // number of strangers_ per address
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_PENDING_CONNECTIONS_H_

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

// Connections that are not served yet: nothing complete has come over them, or they come from an address that no node
// of the round has registered so far. Each has the same time until it is closed. Bounds those of strangers, which are
// the ones from such an address. Pure; not thread-safe. All but Of() is O(1).
class PendingConnections {
 public:
  struct Limits {
    absl::Duration patience = absl::Seconds(10);
    size_t strangers = 1024;
    size_t strangers_of_address = 128;
  };

  explicit PendingConnections(const Limits& limits) : limits_(limits) {}

  // `stranger`: the address, empty for a connection of a node or of this host. False: too many of this address; it was
  // not added.
  bool Add(ClientId id, absl::string_view stranger, SteadyTime now);
  // It is served or closed. No effect if it is not pending.
  void Remove(ClientId id);

  // The longest pending stranger, if there are too many of them: close it.
  std::optional<ClientId> Surplus() const;
  // One whose time is over: close it.
  std::optional<ClientId> Expired(SteadyTime now) const;
  SteadyTime NextDeadline() const;
  // The strangers' connections from this address, the longest pending first.
  std::vector<ClientId> Of(absl::string_view address) const;

 private:
  struct Pending {
    ClientId id = 0;
    SteadyTime until;
    std::string stranger;
  };
  using Line = std::list<Pending>;

  const Limits limits_;
  Line nodes_;  // oldest first, both
  Line strangers_;
  absl::flat_hash_map<ClientId, Line::iterator> by_id_;
  absl::flat_hash_map<std::string, size_t> of_address_;  // of strangers_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_PENDING_CONNECTIONS_H_

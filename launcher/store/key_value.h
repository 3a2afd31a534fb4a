#ifndef DDPRUN_LAUNCHER_STORE_KEY_VALUE_H_
#define DDPRUN_LAUNCHER_STORE_KEY_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/store/request_parser.h"

namespace ddprun::launcher {

// A client of the store: one connection. Chosen by the caller, never reused.
using ClientId = uint64_t;

// Bytes to be sent to a client, after all earlier replies to it.
struct Reply {
  ClientId client = 0;
  std::string bytes;
};

// Content of a TCPStore: keys, queues, and the clients that wait for them. Pure; not thread-safe.
//
// Behaves like torch's own server, byte for byte, except for three faults of that server: here a COMPARE_SET that
// stores nothing wakes no client, a client woken by a queue is not forgotten, and a wait for a non-empty queue ends
// immediately.
class KeyValue {
 public:
  struct Pending {
    ClientId client = 0;
    uint64_t number = 0;  // unique number of this wait
    std::string key;      // a key it still waits for, the first in byte order
  };

  // `max_bytes` limits the memory of content and waits, including bookkeeping (approximate).
  explicit KeyValue(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Executes one request of `client` and appends the resulting replies, to this and to other clients. `max_reply_bytes`
  // limits the reply to this client. A client may have one wait at a time; a second one replaces it.
  //
  // The protocol has no error reply: on an error the client must be closed. Nothing was stored then.
  //   kFailedPrecondition  ADD or BARRIER on a value that is not a 64-bit number
  //   kResourceExhausted   the content or the reply would become too large
  //   kInvalidArgument     the request does not concern the content: VALIDATE, PING, a registration
  absl::Status Apply(ClientId client, Request request, size_t max_reply_bytes, std::vector<Reply>* replies);

  // Removes a client that has disconnected. Its keys stay.
  void Forget(ClientId client);

  // All pending waits, oldest first.
  std::vector<Pending> PendingWaits() const;

  bool AnyWaits() const { return !waits_.empty(); }

  // Memory used, in bytes (approximate).
  size_t bytes() const { return bytes_; }

 private:
  struct Wait {
    uint64_t number = 0;  // increases with every wait: oldest first
    absl::flat_hash_set<std::string> missing;
  };
  using Waiters = absl::btree_map<uint64_t, ClientId>;  // keyed by Wait::number

  absl::Status Set(Request& request, std::vector<Reply>* replies);
  absl::Status Append(Request& request, std::vector<Reply>* replies);
  absl::Status MultiSet(Request& request, std::vector<Reply>* replies);
  absl::Status CompareSet(ClientId client, Request& request, size_t max_reply_bytes, std::vector<Reply>* replies);
  absl::Status Get(ClientId client, const Request& request, size_t max_reply_bytes, std::vector<Reply>* replies) const;
  absl::Status AddOrBarrier(ClientId client, Request& request, std::vector<Reply>* replies);
  absl::Status CheckOrWait(ClientId client, Request& request, std::vector<Reply>* replies);
  absl::Status QueuePush(Request& request, std::vector<Reply>* replies);
  absl::Status QueuePop(ClientId client, const Request& request, size_t max_reply_bytes, std::vector<Reply>* replies);
  absl::Status ListKeys(ClientId client, size_t max_reply_bytes, std::vector<Reply>* replies) const;
  bool DeleteKey(const std::string& key);
  int64_t QueueLength(const std::string& key) const;

  bool IsPresent(const std::string& key) const { return values_.contains(key) || queues_.contains(key); }
  // Returns the error of Apply() if `more` bytes do not fit.
  absl::Status Reserve(size_t more) const;
  void Store(std::string key, std::string value);
  // Defers the reply to `client` until all of `missing` are set. REQUIRES: not empty.
  absl::Status BeginWait(ClientId client, absl::flat_hash_set<std::string> missing);
  void EndWait(ClientId client);
  // Handles that `key` was set: replies to the clients that wait for no other key, all of them or (`only_one`) the
  // oldest.
  void Wake(const std::string& key, bool only_one, std::vector<Reply>* replies);

  size_t max_bytes_;
  size_t bytes_ = 0;
  size_t key_bytes_ = 0;  // sum of the lengths of the keys in values_
  absl::flat_hash_map<std::string, std::string> values_;
  absl::flat_hash_map<std::string, std::deque<std::string>> queues_;  // no queue is empty
  absl::flat_hash_map<ClientId, Wait> waits_;
  absl::flat_hash_map<std::string, Waiters> waiters_;  // no entry is empty
  uint64_t next_wait_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_KEY_VALUE_H_

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
#include "launcher/store/request.h"

namespace ddprun::launcher {

// A client of the store: one connection. Chosen by the caller, never used again for another one.
using ClientId = uint64_t;

// Bytes to be sent to a client, after everything given for it before.
struct Reply {
  ClientId client = 0;
  std::string bytes;
};

// The content of a TCPStore: keys, queues, and the clients that wait for them. Pure; not thread-safe.
//
// Behaves as torch's own server, byte for byte, with three exceptions, all faults of that server: a COMPARE_SET
// that stores nothing wakes nobody; a client woken by a queue is forgotten there; a queue that is not empty is
// not waited for.
class KeyValue {
 public:
  struct Pending {
    ClientId client = 0;
    uint64_t number = 0;  // of this wait: no other one has it
    std::string key;      // one it still waits for, the first in byte order
  };

  // `max_bytes` bounds the content (and the waits), bookkeeping included, roughly.
  explicit KeyValue(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Carries out one request of `client` and appends what it makes the store say, to this and to other clients.
  // `max_reply_bytes` bounds this client's reply. A client may have one wait at a time; a second replaces it.
  //
  // There is no error reply in the protocol: on an error the client is to be closed. Nothing was stored then.
  //   kFailedPrecondition  ADD or BARRIER on a value that is no 64-bit number
  //   kResourceExhausted   the content or the reply would become too large
  //   kInvalidArgument     the request is not for the content: VALIDATE, PING, a registration
  absl::Status Apply(ClientId client, Request request, size_t max_reply_bytes, std::vector<Reply>* replies);

  // The client is gone. What it has written stays.
  void Forget(ClientId client);

  // All unfinished waits, in the order in which they began.
  std::vector<Pending> PendingWaits() const;

  bool AnyWaits() const { return !waits_.empty(); }

  // Memory used, in bytes (roughly).
  size_t bytes() const { return bytes_; }

 private:
  struct Wait {
    uint64_t number = 0;  // grows with every wait: oldest first
    absl::flat_hash_set<std::string> missing;
  };
  using Waiters = absl::btree_map<uint64_t, ClientId>;  // by Wait::number

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
  // Whether `more` bytes fit; the error of Apply() if not.
  absl::Status Reserve(size_t more) const;
  void Store(std::string key, std::string value);
  // Defers the reply to `client` until all of `missing` have come. REQUIRES: not empty.
  absl::Status BeginWait(ClientId client, absl::flat_hash_set<std::string> missing);
  void EndWait(ClientId client);
  // `key` has come: releases those who lack nothing else, all of them or (`only_one`) the oldest.
  void Wake(const std::string& key, bool only_one, std::vector<Reply>* replies);

  size_t max_bytes_;
  size_t bytes_ = 0;
  size_t key_bytes_ = 0;  // sum of the lengths of the keys in values_
  absl::flat_hash_map<std::string, std::string> values_;
  absl::flat_hash_map<std::string, std::deque<std::string>> queues_;  // never an empty one
  absl::flat_hash_map<ClientId, Wait> waits_;
  absl::flat_hash_map<std::string, Waiters> waiters_;  // never an empty one
  uint64_t next_wait_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_KEY_VALUE_H_

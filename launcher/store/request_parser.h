#ifndef DDPRUN_LAUNCHER_STORE_REQUEST_PARSER_H_
#define DDPRUN_LAUNCHER_STORE_REQUEST_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/string_view.h"

// The wire protocol of c10d's TCPStore: requests, the elements of replies, and the parser that assembles requests from
// the bytes of a connection.
namespace ddprun::launcher {

// Requests of c10d's TCPStore protocol plus two of our own, with their wire values. The tests run against the torch
// that scripts/setup installs (2.11); clients of 2.6 to 2.15 were compared by hand.
enum class Opcode : uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompareSet = 2,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kNumKeys = 7,
  kDeleteKey = 8,
  kAppend = 9,
  kMultiGet = 10,
  kMultiSet = 11,
  kCancelWait = 12,
  kPing = 13,
  kQueuePush = 14,
  kQueuePop = 15,
  kQueueLength = 16,
  kListKeys = 17,
  kBarrier = 18,         // torch 2.13 and later
  kRegisterNode = 0xD0,  // a launcher registers its ranks; see registration.h
  kEvidence = 0xD1       // a registered launcher sends evidence about a hang (proto/hang.proto); no reply
};

// Magic number in VALIDATE, the first request of every connection.
inline constexpr uint32_t kValidateMagic = 0x3C85F7CE;

// One complete request. The opcode determines which members are used:
//
//   kValidate            number = magic           kPing               number = nonce
//   kSet, kAppend        keys[0], values[0]       kCompareSet         keys[0], values[0] expected, [1] desired
//   kGet, kDeleteKey     keys[0]                  kAdd                keys[0], number = delta
//   kCheck, kWait        keys                     kMultiGet           keys
//   kMultiSet            keys[i], values[i]       kBarrier            keys[0], number = world size
//   kQueuePush           keys[0], values[0]       kQueuePop, -Length  keys[0]
//   kRegisterNode        values[0] = payload      kEvidence           values[0] = payload
//   others               nothing
//
// Keys and values are arbitrary bytes.
struct Request {
  Opcode opcode = Opcode::kValidate;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  int64_t number = 0;
};

// Elements of replies in the store protocol. A reply has neither length nor opcode: the client knows which request it
// sent. Requests are built from the same elements. Pure functions that append to `out`.

// An integer of its own width: u8, u32, u64 or i64, little-endian (request_parser.cc asserts the host's byte order).
template <typename Integer>
void AppendInteger(Integer number, std::string* out) {
  static_assert(std::is_integral_v<Integer>);
  out->append(reinterpret_cast<const char*>(&number), sizeof number);
}

// A key or a value: u64 length, then the bytes.
inline void AppendString(absl::string_view bytes, std::string* out) {
  AppendInteger<uint64_t>(bytes.size(), out);
  out->append(bytes.data(), bytes.size());
}

// One-byte replies.
inline constexpr uint8_t kCheckReady = 0;     // CHECK: all keys are present
inline constexpr uint8_t kCheckNotReady = 1;  // CHECK: some key is missing
inline constexpr uint8_t kStopWaiting = 0;    // WAIT and BARRIER: the wait has ended
inline constexpr uint8_t kWaitCanceled = 1;   // CANCEL_WAIT
inline constexpr uint8_t kRegistered = 0;     // kRegisterNode: the node is registered

// Size limits of a request, in bytes; the first three are those of torch's own server.
struct RequestLimits {
  uint64_t key_bytes = 8 * 1024;
  uint64_t value_bytes = 8 * 1024 * 1024;
  uint64_t list_items = 128 * 1024;
  uint64_t registration_bytes = 64 * 1024;  // a launcher's, before it has proved to belong to this round
  uint64_t evidence_bytes = 4 * 1024 * 1024;
  uint64_t request_bytes = 64 * 1024 * 1024;
};

// Splits one connection's byte stream into requests, however the bytes arrive. Pure; not thread-safe.
//
// Requests have neither a total length nor an end mark, so each field is consumed as soon as it is complete and never
// examined again: the work is linear in the bytes, and lengths are checked before anything is stored.
class RequestParser {
 public:
  enum class Outcome {
    kRequest,   // a request was written to the argument
    kNeedMore,  // the rest has not arrived yet
    kBad,       // the stream is malformed; error() says why. Final.
  };

  explicit RequestParser(const RequestLimits& limits = RequestLimits()) : limits_(limits) {}

  void Append(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
  Outcome Next(Request* request);

  // Opcode of the next request, as soon as its first byte has arrived.
  std::optional<uint8_t> next_opcode() const;
  // Empty unless Next() has returned kBad. One phrase, without user data.
  const std::string& error() const { return error_; }
  // Memory held for data that has arrived but was not returned yet, in bytes (approximate).
  size_t held_bytes() const { return buffer_.capacity() + partial_bytes_; }

 private:
  enum class Step { kTaken, kNeedMore, kBad };

  Step Begin();
  Step TakeField();
  Step TakeNumber(size_t width);
  Step TakeString(uint64_t limit, absl::string_view what, std::string* text);
  Step TakeValue(uint64_t limit, absl::string_view what);
  Step TakeCount();
  Step Fail(std::string why);
  void DropConsumed();
  size_t available() const { return buffer_.size() - consumed_; }

  const RequestLimits limits_;
  std::string buffer_;
  size_t consumed_ = 0;  // bytes of buffer_ that are already part of partial_

  // The request being assembled.
  Request partial_;
  absl::string_view fields_;    // fields after the opcode, see ShapeOf; null data: no opcode yet
  size_t field_ = 0;            // index of the next field
  uint64_t repeats_ = 0;        // remaining repetitions of the fields after a count
  uint64_t request_bytes_ = 0;  // on the wire
  size_t partial_bytes_ = 0;    // in memory
  std::string error_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_REQUEST_PARSER_H_

#ifndef DDPRUN_LAUNCHER_STORE_REQUEST_PARSER_H_
#define DDPRUN_LAUNCHER_STORE_REQUEST_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/store/request.h"

namespace ddprun::launcher {

// What one request may hold; the first three are those of torch's own server. Sizes are in bytes.
struct RequestLimits {
  uint64_t key_bytes = 8 * 1024;
  uint64_t value_bytes = 8 * 1024 * 1024;
  uint64_t list_items = 128 * 1024;
  uint64_t registration_bytes = 64 * 1024;  // of a launcher, before it is known to be one of this round
  uint64_t request_bytes = 64 * 1024 * 1024;
};

// Cuts one connection's byte stream into requests, however the bytes arrive. Pure; not thread-safe.
//
// Requests carry neither a total length nor an end mark, so each field is taken as soon as it is complete and
// never looked at again: the work is linear in the bytes, and lengths are checked before anything is stored.
class RequestParser {
 public:
  enum class Outcome {
    kRequest,   // a request was written to the argument
    kNeedMore,  // the rest has not arrived
    kBad,       // the stream can't be understood from here on; error() says why. Final.
  };

  explicit RequestParser(const RequestLimits& limits = RequestLimits()) : limits_(limits) {}

  void Append(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
  Outcome Next(Request* request);

  // What the next request is, as soon as its first byte is there.
  std::optional<uint8_t> next_opcode() const;
  // Empty unless Next() has returned kBad. One phrase, without user data.
  const std::string& error() const { return error_; }
  // Memory held for what has arrived but was not yet returned, in bytes (roughly).
  size_t held_bytes() const { return buffer_.capacity() + partial_bytes_; }

 private:
  enum class Step { kTaken, kNeedMore, kBad };

  Step Begin();
  Step TakeField();
  Step TakeNumber(size_t width);
  Step TakeString(uint64_t limit, absl::string_view what, std::string* text);
  Step TakeCount();
  Step Fail(std::string why);
  void DropConsumed();
  size_t available() const { return buffer_.size() - consumed_; }

  const RequestLimits limits_;
  std::string buffer_;
  size_t consumed_ = 0;  // bytes of buffer_ that are already part of partial_

  // The request being put together.
  Request partial_;
  absl::string_view fields_;    // what is to come after the opcode: see kShapes; empty data = no opcode yet
  size_t field_ = 0;            // index of the next field
  uint64_t repeats_ = 0;        // how often the fields after a count are still to come
  uint64_t request_bytes_ = 0;  // of the wire
  size_t partial_bytes_ = 0;    // of memory
  std::string error_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_REQUEST_PARSER_H_

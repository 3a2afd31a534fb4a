#ifndef DDPRUN_LAUNCHER_STORE_REQUEST_PARSER_H_
#define DDPRUN_LAUNCHER_STORE_REQUEST_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/store/request.h"

namespace ddprun::launcher {

// Size limits of a request, in bytes; the first three are those of torch's own server.
struct RequestLimits {
  uint64_t key_bytes = 8 * 1024;
  uint64_t value_bytes = 8 * 1024 * 1024;
  uint64_t list_items = 128 * 1024;
  uint64_t registration_bytes = 64 * 1024;  // a launcher's, before it has proved to belong to this round
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

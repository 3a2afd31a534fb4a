#ifndef DDPRUN_RENDEZVOUS_CORE_FIELDS_H_
#define DDPRUN_RENDEZVOUS_CORE_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/message.h"
#include "google/protobuf/timestamp.pb.h"

namespace ddprun::rendezvous {

// Checks the fields of a message against their bounds, in one of three modes:
//   - for a received message, the first field that does not fit becomes an INVALID_ARGUMENT that names it by its path
//     ("join.settings.last_call: ..."), and texts for people are cleaned;
//   - Lenient(), for values that the server wrote itself and for those that only people look at: a value that does not
//     fit becomes the nearest one that does;
//   - Fit(), for a message that is about to be sent: only texts for people are shortened and made valid UTF-8.
// Thread-compatible; `status` outlives this object.
class Fields {
 public:
  Fields(absl::string_view path, absl::Status* status) : mode_(Mode::kRefuse), path_(path), status_(status) {}
  static Fields Lenient() { return Fields(Mode::kLenient); }
  static Fields Fit() { return Fields(Mode::kFit); }

  // The checker for the message in the field `name`.
  Fields Inside(absl::string_view name) const;

  void Fail(absl::string_view name, absl::string_view problem);
  // A field that must be set.
  void Required(absl::string_view name, bool is_set);

  // A name that is compared: not empty, no control characters, valid UTF-8, at most `max_bytes`.
  void Name(absl::string_view name, size_t max_bytes, std::string* value);
  // A name that may be empty.
  void OptionalName(absl::string_view name, size_t max_bytes, std::string* value);

  // Text for people, of at most `max_bytes`, in valid UTF-8. It becomes OneLine (text.h), or CleanText where lines mean
  // something, so that a peer can't forge a line of a log or move a terminal's cursor.
  void Line(absl::string_view name, size_t max_bytes, std::string* value);
  void Lines(absl::string_view name, size_t max_bytes, std::string* value);

  // Empty, or kMinSecretBytes to kMaxSecretBytes of any kind.
  void Secret(absl::string_view name, const std::string& value);

  // Returns the value, or the nearest one in bounds.
  int32_t Number(absl::string_view name, int64_t value, int64_t low, int64_t high);
  // A step of the training: not negative.
  int64_t Step(absl::string_view name, int64_t value);

  // The field `name` of `message`, a Duration: at least zero and at most kMaxDuration, or infinite. It must be set.
  void Duration(absl::string_view name, google::protobuf::Message* message);
  // As Duration, and not infinite.
  void FiniteDuration(absl::string_view name, google::protobuf::Message* message);

  // A time in the years 1 to 9999; an unset one is the epoch.
  void Time(absl::string_view name, google::protobuf::Timestamp* value);

 private:
  enum class Mode { kRefuse, kLenient, kFit };
  explicit Fields(Mode mode) : mode_(mode) {}

  // True if the value has at most `max_bytes` and is valid UTF-8.
  bool Fits(absl::string_view name, const std::string& value, size_t max_bytes);

  Mode mode_;
  std::string path_;
  absl::Status* status_ = nullptr;
};

// The duration nearest to `value` that Fields::Duration accepts.
absl::Duration NearestDuration(const google::protobuf::Duration& value);

// `text` as valid UTF-8 (bad bytes become '?') of at most `max_bytes`; longer text ends in "...".
std::string FitText(absl::string_view text, size_t max_bytes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FIELDS_H_

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

// Checks the fields of a message against their bounds (limits.h). One Check function per message type (validate.h)
// calls the checks below; the mode decides what they do:
//   - the public constructor is for a received message: the first field out of bounds sets `status` to INVALID_ARGUMENT
//     with the field's path ("join.settings.last_call: ..."), and control characters are removed from displayed texts;
//   - Lenient() is for values that the server wrote itself or that are only displayed: a value out of bounds is
//     replaced by the nearest one in bounds;
//   - Fit() is for a message that is about to be sent: displayed texts are truncated and made valid UTF-8, nothing else
//     is checked.
// Thread-compatible; `status` must outlive this object.
class Fields {
 public:
  Fields(absl::string_view path, absl::Status* status) : mode_(Mode::kRefuse), path_(path), status_(status) {}
  static Fields Lenient() { return Fields(Mode::kLenient); }
  static Fields Fit() { return Fields(Mode::kFit); }

  // Returns a Fields for the message in field `name`, whose paths begin with that field.
  Fields Inside(absl::string_view name) const;

  // Reports field `name` as invalid, if this checks a received message and no field failed before.
  void Fail(absl::string_view name, absl::string_view problem);
  // Fails if the field is not set.
  void Required(absl::string_view name, bool is_set);

  // Checks an id or name that the server compares: not empty, no control characters, valid UTF-8, at most `max_bytes`.
  void Name(absl::string_view name, size_t max_bytes, std::string* value);
  // Same as Name, but the value may be empty.
  void OptionalName(absl::string_view name, size_t max_bytes, std::string* value);

  // Check a displayed text: valid UTF-8 of at most `max_bytes`. Line() turns it into a single line (OneLine in
  // base/text.h), Lines() keeps line breaks (CleanText), so that a peer can't forge lines of a log or move a terminal's
  // cursor.
  void Line(absl::string_view name, size_t max_bytes, std::string* value);
  void Lines(absl::string_view name, size_t max_bytes, std::string* value);

  // Checks a secret: empty, or kMinSecretBytes to kMaxSecretBytes arbitrary bytes.
  void Secret(absl::string_view name, const std::string& value);

  // Checks that `low` <= value <= `high`; returns the value, or the nearest one in bounds.
  int32_t Number(absl::string_view name, int64_t value, int64_t low, int64_t high);
  // Checks an optimizer step or count: not negative. Returns the value, or 0.
  int64_t Step(absl::string_view name, int64_t value);

  // Checks the Duration field `name` of `message`: set, not negative, and at most kMaxDuration or infinite.
  void Duration(absl::string_view name, google::protobuf::Message* message);
  // Same as Duration, but the value must be finite.
  void FiniteDuration(absl::string_view name, google::protobuf::Message* message);

  // Checks that the time is in the years 1 to 9999. An unset time counts as the epoch.
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

// Returns the duration nearest to `value` that Fields::Duration accepts.
absl::Duration NearestDuration(const google::protobuf::Duration& value);

// Returns `text` as valid UTF-8 (invalid bytes become '?') of at most `max_bytes`; truncated text ends in "...".
std::string FitText(absl::string_view text, size_t max_bytes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FIELDS_H_

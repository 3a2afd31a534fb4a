#ifndef DDPRUN_RENDEZVOUS_WIRE_FIELDS_H_
#define DDPRUN_RENDEZVOUS_WIRE_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/message.h"
#include "google/protobuf/timestamp.pb.h"

namespace ddprun::rendezvous {

// Takes fields out of a received message and checks each against its bounds. The first field that does not fit is
// kept as an INVALID_ARGUMENT that names it by its path ("join.settings.last_call: ..."); the values read after
// that are of no use. Thread-compatible; `status` outlives the reader.
class FieldReader {
 public:
  FieldReader(absl::string_view path, absl::Status* status) : path_(path), status_(status) {}

  // For fields of which nothing is refused: a value that does not fit becomes the nearest that does. Of what a server
  // wrote itself, and for what only people look at.
  static FieldReader Lenient() { return FieldReader("", nullptr); }

  // For the fields of the message in the field `name`.
  FieldReader Inside(absl::string_view name) const;

  void Fail(absl::string_view name, absl::string_view problem);

  // A name that is compared: not empty, no control characters, valid UTF-8, at most `max_bytes`.
  std::string Name(absl::string_view name, const std::string& value, size_t max_bytes);

  // A name that may be empty.
  std::string OptionalName(absl::string_view name, const std::string& value, size_t max_bytes);

  // Text for people, of at most `max_bytes`, in valid UTF-8. It comes out as OneLine (text.h), or as CleanText where
  // lines mean something: what a peer says can't forge a line of a log or move a terminal's cursor.
  std::string Line(absl::string_view name, const std::string& value, size_t max_bytes);
  std::string Lines(absl::string_view name, const std::string& value, size_t max_bytes);

  // A protocol_version: at least 1.
  uint32_t Version(uint32_t value);

  // Nothing, or kMinSecretBytes to kMaxSecretBytes of any kind.
  std::string Secret(absl::string_view name, const std::string& value);

  // A number of at least `low` and at most `high`.
  int32_t Number(absl::string_view name, int64_t value, int64_t low, int64_t high);

  // A step of the training: not negative.
  int64_t Step(absl::string_view name, int64_t value);

  // At least zero and at most kMaxDuration, or infinite. A field that is not set is no duration.
  absl::Duration Duration(absl::string_view name, bool is_set, const google::protobuf::Duration& value);

  // A moment of the years 1 to 9999; one that is not set is the epoch.
  absl::Time Time(absl::string_view name, const google::protobuf::Timestamp& value);

 private:
  // Whether it is so long at most, and valid UTF-8.
  bool Fits(absl::string_view name, const std::string& value, size_t max_bytes);

  std::string path_;
  absl::Status* status_;
};

// Of a message whose oneof is empty. UNIMPLEMENTED: it is of a kind that only a newer version knows, and to be ignored
// (protocol 7.2). INVALID_ARGUMENT: it is of no kind at all.
absl::Status UnknownKind(const google::protobuf::Message& message);

// Protobuf's greatest duration stands for an infinite one; parts of a nanosecond are dropped. Negative durations
// are sent as they are, for the receiver to refuse.
void SetDuration(absl::Duration value, google::protobuf::Duration* proto);

// Parts of a nanosecond are dropped; moments that protobuf can't hold are moved to the nearest it can.
void SetTime(absl::Time value, google::protobuf::Timestamp* proto);

// `text` as valid UTF-8 (bad bytes become '?') of at most `max_bytes`: what is too long ends in "...".
std::string FitText(absl::string_view text, size_t max_bytes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_FIELDS_H_

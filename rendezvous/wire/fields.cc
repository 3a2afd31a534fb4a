#include "rendezvous/wire/fields.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "base/text_check.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {
namespace {

constexpr int64_t kProtoForeverSeconds = 315'576'000'000;  // the most that a protobuf Duration may hold
constexpr int64_t kFirstSecond = -62'135'596'800;          // 0001-01-01T00:00:00Z
constexpr int64_t kLastSecond = 253'402'300'799;           // 9999-12-31T23:59:59Z
constexpr int64_t kNanosPerSecond = 1'000'000'000;
constexpr absl::string_view kEllipsis = "...";

}  // namespace

FieldReader FieldReader::Inside(absl::string_view name) const {
  if (status_ == nullptr) return Lenient();
  return FieldReader(absl::StrCat(path_, ".", name), status_);
}

void FieldReader::Fail(absl::string_view name, absl::string_view problem) {
  if (status_ == nullptr || !status_->ok()) return;
  *status_ = absl::InvalidArgumentError(absl::StrCat(path_, ".", name, ": ", problem));
}

std::string FieldReader::Name(absl::string_view name, const std::string& value, size_t max_bytes) {
  if (value.empty()) Fail(name, "must not be empty");
  return OptionalName(name, value, max_bytes);
}

std::string FieldReader::OptionalName(absl::string_view name, const std::string& value, size_t max_bytes) {
  if (status_ == nullptr) return OneLine(value, max_bytes);
  if (!Fits(name, value, max_bytes)) return "";
  if (HasControl(value)) Fail(name, "contains a control character");
  return value;
}

std::string FieldReader::Line(absl::string_view name, const std::string& value, size_t max_bytes) {
  return status_ == nullptr || Fits(name, value, max_bytes) ? OneLine(value, max_bytes) : "";
}

std::string FieldReader::Lines(absl::string_view name, const std::string& value, size_t max_bytes) {
  if (status_ == nullptr) return FitText(CleanText(value), max_bytes);
  return Fits(name, value, max_bytes) ? CleanText(value) : "";
}

bool FieldReader::Fits(absl::string_view name, const std::string& value, size_t max_bytes) {
  if (value.size() > max_bytes) Fail(name, absl::StrCat("has ", value.size(), " bytes, more than ", max_bytes));
  if (!IsUtf8(value)) Fail(name, "is not valid UTF-8");
  return value.size() <= max_bytes && IsUtf8(value);
}

uint32_t FieldReader::Version(uint32_t value) {
  if (value == 0) Fail("protocol_version", "is missing");
  return value;
}

std::string FieldReader::Secret(absl::string_view name, const std::string& value) {
  if (!value.empty() && (value.size() < kMinSecretBytes || value.size() > kMaxSecretBytes)) {
    Fail(name, absl::StrCat("has ", value.size(), " bytes; it must have ", kMinSecretBytes, " to ", kMaxSecretBytes));
  }
  return value;
}

int32_t FieldReader::Number(absl::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    Fail(name, absl::StrCat("must be from ", low, " to ", high, ", not ", value));
  }
  return static_cast<int32_t>(std::clamp(value, low, high));
}

int64_t FieldReader::Step(absl::string_view name, int64_t value) {
  if (value < 0) Fail(name, absl::StrCat("must not be negative, not ", value));
  return std::max<int64_t>(value, 0);
}

absl::Duration FieldReader::Duration(absl::string_view name, bool is_set, const google::protobuf::Duration& value) {
  if (!is_set) {
    Fail(name, "is missing");
    return absl::ZeroDuration();
  }
  if (value.seconds() == kProtoForeverSeconds && value.nanos() == 0) return absl::InfiniteDuration();
  const int64_t max_seconds = absl::ToInt64Seconds(kMaxDuration);
  const bool in_range = value.seconds() >= 0 && value.seconds() <= max_seconds && value.nanos() >= 0 &&
                        value.nanos() < kNanosPerSecond && (value.seconds() < max_seconds || value.nanos() == 0);
  if (!in_range) {
    Fail(name, absl::StrCat("must be from 0 to ", max_seconds, " seconds, not ", value.seconds(), " s and ",
                            value.nanos(), " ns"));
    return value.seconds() < 0 || value.nanos() < 0 ? absl::ZeroDuration() : kMaxDuration;
  }
  return absl::Seconds(value.seconds()) + absl::Nanoseconds(value.nanos());
}

absl::Time FieldReader::Time(absl::string_view name, const google::protobuf::Timestamp& value) {
  const bool in_range = value.seconds() >= kFirstSecond && value.seconds() <= kLastSecond && value.nanos() >= 0 &&
                        value.nanos() < kNanosPerSecond;
  if (!in_range) {
    Fail(name, "must be a time in the years 1 to 9999");
    return absl::FromUnixSeconds(std::clamp(value.seconds(), kFirstSecond, kLastSecond));
  }
  return absl::FromUnixSeconds(value.seconds()) + absl::Nanoseconds(value.nanos());
}

absl::Status UnknownKind(const google::protobuf::Message& message) {
  const google::protobuf::UnknownFieldSet& unknown = message.GetReflection()->GetUnknownFields(message);
  if (unknown.empty()) return absl::InvalidArgumentError("message: is missing");
  return absl::UnimplementedError(absl::StrCat("message: unknown field ", unknown.field(0).number()));
}

void SetDuration(absl::Duration value, google::protobuf::Duration* proto) {
  if (value >= absl::Seconds(kProtoForeverSeconds)) {
    proto->set_seconds(kProtoForeverSeconds);
    return;
  }
  value = std::max(value, -absl::Seconds(kProtoForeverSeconds));
  absl::Duration rest;
  proto->set_seconds(absl::IDivDuration(value, absl::Seconds(1), &rest));
  proto->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

void SetTime(absl::Time value, google::protobuf::Timestamp* proto) {
  value = std::clamp(value, absl::FromUnixSeconds(kFirstSecond), absl::FromUnixSeconds(kLastSecond));
  const int64_t seconds = absl::ToUnixSeconds(value);  // rounds down, so the rest is positive
  proto->set_seconds(seconds);
  proto->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(value - absl::FromUnixSeconds(seconds))));
}

std::string FitText(absl::string_view text, size_t max_bytes) {
  const bool too_long = text.size() > max_bytes;
  const size_t room = too_long ? max_bytes - kEllipsis.size() : max_bytes;
  std::string clean;
  while (!text.empty()) {
    const size_t length = Utf8CharacterLength(text);
    const absl::string_view next = length == 0 ? "?" : text.substr(0, length);
    if (clean.size() + next.size() > room) break;
    clean.append(next.data(), next.size());
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  if (too_long) clean.append(kEllipsis.data(), kEllipsis.size());
  return clean;
}

}  // namespace ddprun::rendezvous

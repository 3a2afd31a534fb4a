#include "rendezvous/core/fields.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "proto/time.h"
#include "rendezvous/core/limits.h"

namespace ddprun::rendezvous {
namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;
constexpr absl::string_view kEllipsis = "...";

}  // namespace

Fields Fields::Inside(absl::string_view name) const {
  Fields inside = *this;
  inside.path_ = absl::StrCat(path_, ".", name);
  return inside;
}

void Fields::Fail(absl::string_view name, absl::string_view problem) {
  if (mode_ != Mode::kRefuse || !status_->ok()) return;
  *status_ = absl::InvalidArgumentError(absl::StrCat(path_, ".", name, ": ", problem));
}

void Fields::Required(absl::string_view name, bool is_set) {
  if (!is_set) Fail(name, "is missing");
}

void Fields::Name(absl::string_view name, size_t max_bytes, std::string* value) {
  if (value->empty()) Fail(name, "must not be empty");
  OptionalName(name, max_bytes, value);
}

void Fields::OptionalName(absl::string_view name, size_t max_bytes, std::string* value) {
  if (mode_ == Mode::kLenient) *value = OneLine(*value, max_bytes);
  if (mode_ == Mode::kRefuse && Fits(name, *value, max_bytes) && HasControl(*value)) {
    Fail(name, "contains a control character");
  }
}

void Fields::Line(absl::string_view name, size_t max_bytes, std::string* value) {
  if (mode_ == Mode::kFit) {
    *value = FitText(*value, max_bytes);
  } else if (mode_ == Mode::kLenient || Fits(name, *value, max_bytes)) {
    *value = OneLine(*value, max_bytes);
  }
}

void Fields::Lines(absl::string_view name, size_t max_bytes, std::string* value) {
  if (mode_ == Mode::kFit) {
    *value = FitText(*value, max_bytes);
  } else if (mode_ == Mode::kLenient || Fits(name, *value, max_bytes)) {
    *value = FitText(CleanText(*value), max_bytes);
  }
}

bool Fields::Fits(absl::string_view name, const std::string& value, size_t max_bytes) {
  if (value.size() > max_bytes) Fail(name, absl::StrCat("has ", value.size(), " bytes, more than ", max_bytes));
  if (!IsUtf8(value)) Fail(name, "is not valid UTF-8");
  return value.size() <= max_bytes && IsUtf8(value);
}

void Fields::Secret(absl::string_view name, const std::string& value) {
  if (!value.empty() && (value.size() < kMinSecretBytes || value.size() > kMaxSecretBytes)) {
    Fail(name, absl::StrCat("has ", value.size(), " bytes; it must have ", kMinSecretBytes, " to ", kMaxSecretBytes));
  }
}

int32_t Fields::Number(absl::string_view name, int64_t value, int64_t low, int64_t high) {
  if (mode_ == Mode::kFit) return static_cast<int32_t>(value);
  if (value < low || value > high) {
    Fail(name, absl::StrCat("must be from ", low, " to ", high, ", not ", value));
  }
  return static_cast<int32_t>(std::clamp(value, low, high));
}

int64_t Fields::Step(absl::string_view name, int64_t value) {
  if (mode_ == Mode::kFit) return value;
  if (value < 0) Fail(name, absl::StrCat("must not be negative, not ", value));
  return std::max<int64_t>(value, 0);
}

void Fields::Duration(absl::string_view name, google::protobuf::Message* message) {
  const auto* field = message->GetDescriptor()->FindFieldByName(std::string(name));
  const auto* reflection = message->GetReflection();
  if (mode_ == Mode::kFit) return;
  if (!reflection->HasField(*message, field)) return Required(name, false);
  auto* value = static_cast<google::protobuf::Duration*>(reflection->MutableMessage(message, field));
  const google::protobuf::Duration nearest = FromDuration(NearestDuration(*value));
  if (value->seconds() == nearest.seconds() && value->nanos() == nearest.nanos()) return;
  Fail(name, absl::StrCat("must be from 0 to ", absl::ToInt64Seconds(kMaxDuration), " seconds, not ", value->seconds(),
                          " s and ", value->nanos(), " ns"));
  *value = nearest;
}

void Fields::FiniteDuration(absl::string_view name, google::protobuf::Message* message) {
  Duration(name, message);
  const auto* field = message->GetDescriptor()->FindFieldByName(std::string(name));
  const auto& value = message->GetReflection()->GetMessage(*message, field);
  if (ToDuration(static_cast<const google::protobuf::Duration&>(value)) == absl::InfiniteDuration()) {
    Fail(name, "must be finite");
  }
}

void Fields::Time(absl::string_view name, google::protobuf::Timestamp* value) {
  if (mode_ == Mode::kFit) return;
  const bool has_nanos = value->nanos() >= 0 && value->nanos() < kNanosPerSecond;
  const google::protobuf::Timestamp nearest =
      FromTime(absl::FromUnixSeconds(value->seconds()) + absl::Nanoseconds(has_nanos ? value->nanos() : 0));
  if (has_nanos && nearest.seconds() == value->seconds()) return;
  Fail(name, "must be a time in the years 1 to 9999");
  *value = nearest;
}

absl::Duration NearestDuration(const google::protobuf::Duration& value) {
  const bool has_nanos = value.nanos() >= 0 && value.nanos() < kNanosPerSecond;
  if (value.seconds() < 0 || value.nanos() < 0) return absl::ZeroDuration();
  if (!has_nanos) return kMaxDuration;
  const absl::Duration duration = ToDuration(value);
  return duration == absl::InfiniteDuration() ? duration : std::min(duration, kMaxDuration);
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

#include "proto/time.h"

#include <algorithm>
#include <cstdint>

namespace ddprun {
namespace {

constexpr int64_t kForeverSeconds = 315'576'000'000;
constexpr int64_t kFirstSecond = -62'135'596'800;  // 0001-01-01T00:00:00Z
constexpr int64_t kLastSecond = 253'402'300'799;   // 9999-12-31T23:59:59Z

}  // namespace

google::protobuf::Duration FromDuration(absl::Duration value) {
  google::protobuf::Duration proto;
  value = std::clamp(value, -absl::Seconds(kForeverSeconds), absl::Seconds(kForeverSeconds));
  absl::Duration rest;
  proto.set_seconds(absl::IDivDuration(value, absl::Seconds(1), &rest));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return proto;
}

absl::Duration ToDuration(const google::protobuf::Duration& value) {
  if (value.seconds() >= kForeverSeconds) return absl::InfiniteDuration();
  return absl::Seconds(value.seconds()) + absl::Nanoseconds(value.nanos());
}

google::protobuf::Timestamp FromTime(absl::Time value) {
  google::protobuf::Timestamp proto;
  value = std::clamp(value, absl::FromUnixSeconds(kFirstSecond), absl::FromUnixSeconds(kLastSecond));
  const int64_t seconds = absl::ToUnixSeconds(value);  // rounds down, so the rest is positive
  proto.set_seconds(seconds);
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(value - absl::FromUnixSeconds(seconds))));
  return proto;
}

absl::Time ToTime(const google::protobuf::Timestamp& value) {
  return absl::FromUnixSeconds(value.seconds()) + absl::Nanoseconds(value.nanos());
}

}  // namespace ddprun

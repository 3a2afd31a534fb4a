#ifndef DDPRUN_PROTO_TIME_H_
#define DDPRUN_PROTO_TIME_H_

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include "absl/time/time.h"

// Durations and times of protobuf messages. Pure functions.
namespace ddprun {

// Protobuf's greatest Duration, 10,000 years, stands for an infinite one. Parts of a nanosecond are dropped.
google::protobuf::Duration FromDuration(absl::Duration value);
absl::Duration ToDuration(const google::protobuf::Duration& value);

// Parts of a nanosecond are dropped. Times outside the years 1 to 9999 become the nearest one inside.
google::protobuf::Timestamp FromTime(absl::Time value);
absl::Time ToTime(const google::protobuf::Timestamp& value);

}  // namespace ddprun

#endif  // DDPRUN_PROTO_TIME_H_

#ifndef DDPRUN_DDPRUNCTL_JSON_H_
#define DDPRUN_DDPRUNCTL_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace ddprun::ctl {

// PURE: converts a message to JSON with its field names. Plain fields are always present, even if 0; messages and
// optional fields only if set. Durations are seconds, times RFC 3339 in UTC, states in lower case ("running"). NaN and
// infinity are null.
nlohmann::json ToJson(const google::protobuf::Message& message);

}  // namespace ddprun::ctl

#endif  // DDPRUN_DDPRUNCTL_JSON_H_

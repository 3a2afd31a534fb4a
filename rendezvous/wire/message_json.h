#ifndef DDPRUN_RENDEZVOUS_WIRE_MESSAGE_JSON_H_
#define DDPRUN_RENDEZVOUS_WIRE_MESSAGE_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

// The JSON of messages: of the HTTP API and ddprunctl --output=json. Pure functions.
namespace ddprun::rendezvous {

// Converts a message to JSON with its field names. Plain fields are always present, even if 0; messages and optional
// fields only if set. Durations are seconds, times RFC 3339 in UTC with microseconds, states in lower case ("running").
// NaN and infinity, such as an infinite duration, become null in the text.
nlohmann::json ToJson(const google::protobuf::Message& message);

// Formats a value as one line. Invalid UTF-8 is replaced.
template <typename Json>
std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_MESSAGE_JSON_H_

#ifndef DDPRUN_RENDEZVOUS_CORE_JOIN_CHECK_H_
#define DDPRUN_RENDEZVOUS_CORE_JOIN_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_field.h"
#include "rendezvous/core/messages.h"

// Checks of a message against the job or node that it concerns; validate.h checks a message by itself. Pure functions.
namespace ddprun::rendezvous {

// Checks the survivors that a node with `slots` workers reports (protocol 2.2): local ranks below `slots` and
// ascending, steps not negative. Returns nullopt if they are valid, otherwise what is wrong, e.g. "has local rank 8;
// ...".
std::optional<std::string> CheckSurvivors(const google::protobuf::RepeatedPtrField<Survivor>& survivors, int32_t slots);

// Compares the settings of a Join from `host` with the job's, which came from `job_host` (protocol 2.1). Returns
// nullopt if they are equal, otherwise one line with the first difference, both values and both hosts.
std::optional<std::string> CheckSameSettings(absl::string_view job_id, absl::string_view job_host,
                                             const JobSettings& job, absl::string_view host,
                                             const JobSettings& settings);

// Returns the reason for rejecting a Join of `host` whose node id belongs to another launcher process (protocol 2.4).
std::string OtherLaunchersId(absl::string_view job_id, absl::string_view host);

// Checks the host name in a command. Returns nullopt if it is valid, otherwise what is wrong with it.
std::optional<std::string> CheckHostName(const std::string& host);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOIN_CHECK_H_

#ifndef DDPRUN_RENDEZVOUS_CORE_JOIN_CHECK_H_
#define DDPRUN_RENDEZVOUS_CORE_JOIN_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_field.h"
#include "rendezvous/core/messages.h"

// Checks that concern the job or the node and not one message alone (see validate.h for those). Pure functions.
namespace ddprun::rendezvous {

// nullopt, or a phrase that says what is wrong with the survivors of a node with so many slots: a local rank that it
// does not have, out of order or twice; a negative step.
std::optional<std::string> CheckSurvivors(const google::protobuf::RepeatedPtrField<Survivor>& survivors, int32_t slots);

// nullopt, or one line that names the first setting that differs, both values and both hosts.
std::optional<std::string> CheckSameSettings(absl::string_view job_id, absl::string_view job_host,
                                             const JobSettings& job, absl::string_view host,
                                             const JobSettings& settings);

// One line for who brings a node id that another launcher process has (protocol 2.4).
std::string OtherLaunchersId(absl::string_view job_id, absl::string_view host);

// nullopt, or what is wrong with the name of a host that a command names.
std::optional<std::string> CheckHostName(const std::string& host);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOIN_CHECK_H_

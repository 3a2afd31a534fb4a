#ifndef DDPRUN_RENDEZVOUS_CORE_JOIN_CHECK_H_
#define DDPRUN_RENDEZVOUS_CORE_JOIN_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "rendezvous/core/messages.h"

// What a launcher may bring (protocol 2). Pure functions.
namespace ddprun::rendezvous {

// nullopt, or one line that names the field of the Join that is out of bounds. All bounds of a Join are here, but those
// of parts that other messages have too (rendezvous/wire/parts.h).
std::optional<std::string> CheckJoin(const Join& join);

// The same for the settings of a job.
std::optional<std::string> CheckSettings(const JobSettings& settings);

// nullopt, or a phrase that says what is wrong with the survivors of a node with so many slots: a local rank that it
// does not have, out of order or twice; a negative step.
std::optional<std::string> CheckSurvivors(const std::vector<Survivor>& survivors, int32_t slots);

bool IsPort(int32_t port);

// nullopt, or one line that names the first setting that differs, both values and both hosts.
std::optional<std::string> CheckSameSettings(absl::string_view job_id, absl::string_view job_host,
                                             const JobSettings& job, absl::string_view host,
                                             const JobSettings& settings);

// One line for who brings a node id that another launcher process has (protocol 2.4).
std::string OtherLaunchersId(absl::string_view job_id, absl::string_view host);

// A report is never refused for being long: its texts are cut to their bounds, between UTF-8 characters.
WorkerFailure Bounded(WorkerFailure failure);
// nullopt, or what is wrong with the name of a host that a command names.
std::optional<std::string> CheckHostName(const std::string& host);
std::string Bounded(std::string text, size_t max_bytes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOIN_CHECK_H_

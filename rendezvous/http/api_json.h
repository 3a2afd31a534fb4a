#ifndef DDPRUN_RENDEZVOUS_HTTP_API_JSON_H_
#define DDPRUN_RENDEZVOUS_HTTP_API_JSON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/event.h"
#include "rendezvous/core/job_view.h"
#include "rendezvous/http/server_view.h"

// PURE: JSON bodies of /api/v1 (docs/rendezvousd.md documents the fields). Durations are numbers of seconds; unknown
// values are null or omitted.
namespace ddprun::http {

// {"jobs": [...], "next": ID of the last one, if more follow}. Jobs are listed without their nodes. `start`: the
// wall-clock time at SteadyTime's start.
std::string JobsJson(const std::vector<rendezvous::JobView>& jobs, bool more, absl::Time start);

std::string JobJson(const rendezvous::JobView& job, absl::Time start);

// Node ids are replaced by their shown form (base/shown_id.h).
std::string EventJson(uint64_t number, const rendezvous::Event& event);

std::string ServerJson(const ServerView& server);

// An error that names the leader, if known. REQUIRES: the server is not the leader.
std::string FollowerJson(const ServerView& server);

std::string ErrorJson(absl::string_view message);

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_API_JSON_H_

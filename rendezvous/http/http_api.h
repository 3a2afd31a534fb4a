#ifndef DDPRUN_RENDEZVOUS_HTTP_HTTP_API_H_
#define DDPRUN_RENDEZVOUS_HTTP_HTTP_API_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/http/http_message.h"
#include "rendezvous/http/login.h"
#include "rendezvous/http/server_view.h"
#include "rendezvous/server/event_log.h"
#include "rendezvous/server/acceptor.h"

namespace ddprun::http {

// Data shown by the API. Functions are called on the HTTP server's thread and return at once.
struct Sources {
  std::function<std::vector<v1::Job>(absl::string_view after, size_t limit)> list_jobs;
  std::function<std::optional<v1::Job>(absl::string_view job_id)> get_job;
  std::function<ServerView()> server;
  std::function<EventCounts()> counts;
  const rendezvous::EventLog* events = nullptr;  // outlives the users of the sources
};

// Answers the requests of rendezvousd's HTTP server (docs/rendezvousd.md lists the paths). Logs invalid tokens, at most
// one line in ten seconds. Thread-compatible.
class HttpApi {
 public:
  static constexpr size_t kMaxJobsPerPage = 1000;

  // `any_host`: without tokens, answer requests for any name of this server, not only for loopback names.
  HttpApi(Sources sources, const rendezvous::Credentials& credentials, bool any_host);

  Response Handle(const Request& request);

 private:
  Response Route(const Request& request, const Target& target);
  Response Readiness() const;
  Response Server() const;
  Response Metrics() const;
  Response Jobs(const Target& target) const;
  Response Events(const Request& request, const Target& target) const;
  Response Job(const std::string& job_id) const;
  Response LogIn(const Request& request);
  void LogRefusal(const Request& request);

  const Sources sources_;
  const bool check_host_;
  const bool tls_;
  const std::string server_id_;  // see EventStream
  Login login_;
  rendezvous::RefusalLog refusals_;
};

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_HTTP_API_H_

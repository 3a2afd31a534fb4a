#ifndef DDPRUN_RENDEZVOUS_HTTP_HTTP_API_H_
#define DDPRUN_RENDEZVOUS_HTTP_HTTP_API_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/socket_owner.h"
#include "base/steady_time.h"
#include "proto/control.pb.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/http/http_message.h"
#include "rendezvous/http/http_server.h"
#include "rendezvous/http/metrics.h"
#include "rendezvous/server/acceptor.h"
#include "rendezvous/server/event_log.h"
#include "rendezvous/wire/credential_files.h"

// The services of rendezvousd over HTTP: the web page, metrics, the JSON API and event streams (docs/rendezvousd.md).
// HttpApi routes a request to its answer, Login checks its caller, EventStream is an answer without end; HttpService
// connects them to the HTTP server (http_server.h) and to the events of the rendezvous server.
namespace ddprun::http {

// Data shown by the API. Functions are called on the HTTP server's thread and return at once.
struct Sources {
  std::function<std::vector<v1::Job>(absl::string_view after, size_t limit)> list_jobs;
  std::function<std::optional<v1::Job>(absl::string_view job_id)> get_job;
  std::function<ServerView()> server;
  std::function<EventCounts()> counts;
  const rendezvous::EventLog* events = nullptr;  // outlives the users of the sources
  // Asks launchers, as Driver::Inspect. Null: not possible.
  std::function<void(v1::InspectRequest question, const rendezvous::Caller& caller, v1::InspectResponse* response,
                     std::function<void(absl::Status)> answer)>
      inspect = nullptr;
  // Makes the server send the answer, from any thread.
  std::function<void()> wake = nullptr;
};

// Authenticates clients by a token of any role, sent with each request or exchanged once for a cookie. Cookies are
// valid only in this process, and only as long as the token they were issued for. Thread-compatible.
class Login {
 public:
  static constexpr absl::Duration kLifetime = absl::Hours(12);
  static constexpr size_t kMaxSessions = 1000;  // beyond that the oldest session has to log in again

  explicit Login(const rendezvous::Credentials& credentials);

  // True if a token is required at all.
  bool required() const { return required_; }

  // Returns who sends the request: the holder of its token (Authorization: Bearer) or of the one for which it got its
  // cookie from Begin. nullopt: neither is valid.
  std::optional<rendezvous::Caller> CallerOf(const Request& request, SteadyTime now);
  // True if no token is required, or the request has a valid one.
  bool Allows(const Request& request, SteadyTime now) { return !required_ || CallerOf(request, now).has_value(); }

  // Returns the value of a Set-Cookie header for a request that sent `token`; nullopt if the token is invalid.
  // `secure`: the connection is encrypted.
  std::optional<std::string> Begin(const Request& request, const std::string& token, bool secure, SteadyTime now);

 private:
  struct Session {
    std::string digest;  // digest of the cookie
    std::string token;
    SteadyTime until;
  };

  const bool required_;
  rendezvous::Tokens tokens_;
  std::list<Session> sessions_;  // oldest first
};

// Server-sent events of one job, or of all. An id is "SERVER-NUMBER": SERVER is random for each process, because
// restored events have other numbers in another process. Besides events, which have no name, the stream contains
//   reset  the client's last event came from another process: its state is outdated, the newest events follow.
//   gap    events are missing: the client was away, or slow, for longer than the server keeps them.
// Thread-compatible.
class EventStream {
 public:
  static constexpr size_t kMaxBacklog = 1000;

  struct Options {
    std::string job_id;   // empty: all jobs and hosts
    std::string last_id;  // the Last-Event-ID header; empty if there is none
    size_t backlog = 0;   // number of old events to send first, unless last_id says where to resume
  };

  // The log outlives it.
  EventStream(const rendezvous::EventLog* log, const std::string& server, Options options);

  // Returns what to send next, at most about 64 KiB; empty: nothing yet.
  std::string Next();

 private:
  // The number of the event after which to start, so that at most options_.backlog old events are sent.
  uint64_t BacklogStart() const;
  bool Matches(const rendezvous::Event& event) const;

  const rendezvous::EventLog* const log_;
  const std::string server_;
  const Options options_;
  uint64_t after_ = 0;
  std::string head_;  // sent before the first event
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
  // Stacks, output and usage of ranks, for those who may command the job.
  Response Inspect(const Request& request, const Target& target);
  Response LogIn(const Request& request);
  void LogRefusal(const Request& request);

  const Sources sources_;
  const bool check_host_;
  const bool tls_;
  const std::string server_id_;  // see EventStream
  Login login_;
  rendezvous::RefusalLog refusals_;
  SocketOwner socket_owner_;
};

struct ServiceOptions {
  std::string address;  // ADDRESS:PORT
  bool open = false;    // see HttpApi's `any_host`
  rendezvous::Credentials credentials;
};

// Serves `sources` over HTTP. The objects that the sources use outlive it. Thread-safe.
class HttpService {
 public:
  // Starts serving. `sources.counts`, `sources.events` and the numbers of connections in `sources.server` are filled in
  // here. Errors: see Server::Start.
  static absl::StatusOr<std::unique_ptr<HttpService>> Start(const ServiceOptions& options, Sources sources,
                                                            rendezvous::EventLog* events);
  // No source is called after it returns.
  ~HttpService();

  int port() const { return server_->port(); }

 private:
  explicit HttpService(rendezvous::EventLog* events) : events_(events) {}

  // Called after events were appended.
  void OnEvents();
  void CountNew() ABSL_LOCKS_EXCLUDED(mutex_);
  EventCounts CountEvents() ABSL_LOCKS_EXCLUDED(mutex_);

  rendezvous::EventLog* const events_;
  Mutex mutex_;
  EventCounter counter_ ABSL_GUARDED_BY(mutex_);
  uint64_t counted_ ABSL_GUARDED_BY(mutex_) = 0;  // number of the last event counted
  std::unique_ptr<HttpApi> api_;
  std::unique_ptr<Server> server_;
  std::atomic<Server*> running_{nullptr};  // for the server's thread, which may run before Start returns
  rendezvous::EventLog::Watch watch_;      // last: it calls OnEvents
};

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_HTTP_API_H_

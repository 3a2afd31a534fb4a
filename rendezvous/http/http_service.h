#ifndef DDPRUN_RENDEZVOUS_HTTP_HTTP_SERVICE_H_
#define DDPRUN_RENDEZVOUS_HTTP_HTTP_SERVICE_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/http/event_counter.h"
#include "rendezvous/http/http_api.h"
#include "rendezvous/http/http_server.h"
#include "rendezvous/server/event_log.h"

namespace ddprun::http {

struct ServiceOptions {
  std::string address;  // ADDRESS:PORT
  bool open = false;    // as HttpApi's `any_host`
  rendezvous::Credentials credentials;
};

// Serves `sources` over HTTP. The objects that the sources use outlive it. Thread-safe.
class HttpService {
 public:
  // Errors: see Server::Start. `sources.counts`, and the numbers of connections in `sources.server`, are filled in
  // here. REQUIRES: sources.events is not nullptr.
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

#endif  // DDPRUN_RENDEZVOUS_HTTP_HTTP_SERVICE_H_

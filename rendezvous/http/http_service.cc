#include "rendezvous/http/http_service.h"

#include <utility>

#include "base/endpoint.h"
#include "base/steady_time.h"

namespace ddprun::http {

absl::StatusOr<std::unique_ptr<HttpService>> HttpService::Start(const ServiceOptions& options, Sources sources,
                                                                rendezvous::EventLog* events) {
  const absl::StatusOr<Endpoint> address = ParseEndpoint(options.address);
  if (!address.ok()) return address.status();
  std::unique_ptr<HttpService> service(new HttpService(events));
  HttpService* const raw = service.get();
  sources.events = events;
  sources.counts = [raw] { return raw->CountEvents(); };
  sources.server = [raw, inner = std::move(sources.server), began = SteadyNow()] {
    ServerView view = inner();
    const Server* const server = raw->running_;
    const Server::Counts counts = server == nullptr ? Server::Counts() : server->counts();
    view.connections = counts.connections;
    view.event_streams = counts.streams;
    view.refused_connections = counts.refused;
    view.age = SteadyNow() - began;
    return view;
  };
  service->api_ = std::make_unique<HttpApi>(std::move(sources), options.credentials, options.open);
  absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start(*address, options.credentials,
                    [api = service->api_.get()](const Request& request) { return api->Handle(request); });
  if (!server.ok()) return server.status();
  service->server_ = *std::move(server);
  service->running_ = service->server_.get();
  service->watch_ = events->AddWatch([raw] { raw->OnEvents(); });
  return service;
}

HttpService::~HttpService() {
  watch_.Reset();
  server_.reset();
}

void HttpService::OnEvents() {
  // Count at each event, so that none leaves the log uncounted.
  CountNew();
  Server* const server = running_;
  if (server != nullptr) server->Wake();
}

EventCounts HttpService::CountEvents() {
  CountNew();
  MutexLock lock(&mutex_);
  return counter_.counts();
}

void HttpService::CountNew() {
  constexpr size_t kAtOnce = 1000;
  MutexLock lock(&mutex_);
  while (counted_ < events_->newest()) {
    for (const auto& event : events_->Read(counted_, kAtOnce)) {
      counted_ = event->number();
      // Events of earlier servers were counted there.
      if (counted_ > events_->restored()) counter_.Add(*event);
    }
  }
}

}  // namespace ddprun::http

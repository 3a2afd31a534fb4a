#include "rendezvous/http/http_service.h"

#include <utility>

#include "rendezvous/base/endpoint.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/wire/host_port.h"

namespace ddprun::http {

absl::StatusOr<std::unique_ptr<HttpService>> HttpService::Start(const ServiceOptions& options, Sources sources) {
  const absl::StatusOr<Endpoint> address = rendezvous::ParseHostPort(options.address);
  if (!address.ok()) return address.status();
  std::unique_ptr<HttpService> service(new HttpService());
  HttpService* const raw = service.get();
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
  return service;
}

HttpService::~HttpService() { server_.reset(); }

}  // namespace ddprun::http

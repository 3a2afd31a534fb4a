#include "rendezvous/server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/resource_quota.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/endpoint.h"
#include "rendezvous/server/acceptor.h"
#include "rendezvous/server/call_counter.h"
#include "rendezvous/server/call_guard.h"
#include "rendezvous/server/control_service.h"
#include "rendezvous/server/health_service.h"
#include "rendezvous/server/job_queries.h"
#include "rendezvous/server/launcher_stream.h"
#include "rendezvous/server/unary_call.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/channel_security.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kMaxMemoryBytes = 512 << 20;  // for gRPC's buffers
constexpr int kMaxReflectionThreads = 8;
constexpr int kMaxStreamsPerConnection = 100;  // a launcher needs one
constexpr int kMaxIdleMs = 15'000;             // for a connection without streams
constexpr int kHandshakeTimeoutMs = 5'000;     // until a connection has begun to speak HTTP/2
// Heartbeats detect lost peers; keepalive only frees their connections. The timeout is long because the end of a
// connection counts as the loss of its launcher, which silence may cause only long after the heartbeats (protocol 4.5).
constexpr int kKeepaliveTimeMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 1'200'000;
constexpr int kIdlePollMs = 3'600'000;  // of the reflection service's thread; avoids needless wake-ups
constexpr auto kShutdownGrace = std::chrono::seconds(1);

void SetLimits(grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota("rendezvous");
  quota.Resize(kMaxMemoryBytes).SetMaxThreads(kMaxReflectionThreads);
  builder->SetResourceQuota(quota);
  builder->SetMaxReceiveMessageSize(kMaxReceivedBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::CQ_TIMEOUT_MSEC, kIdlePollMs);
}

// Removes gRPC's plugins, including the reflection service.
class WithoutPlugins final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override { plugins->clear(); }
};

}  // namespace

class Server::Impl {
 public:
  Impl(Driver* driver, const ServerOptions& options)
      : driver_(driver),
        options_(options),
        guard_(options.credentials),
        acceptor_(options.credentials.tls_cert.empty() ? Acceptor::Protocol::kHttp2 : Acceptor::Protocol::kTls,
                  options.connections),
        control_(driver) {}
  ~Impl() { Shutdown(); }

  absl::Status Start(const std::vector<Endpoint>& listen) {
    for (const Endpoint& address : listen) {
      const absl::StatusOr<int> port =
          options_.listener >= 0 ? acceptor_.Adopt(options_.listener, address.port) : acceptor_.Listen(address);
      if (!port.ok()) return port.status();
      addresses_.push_back(Endpoint{address.host, *port}.ToString());
      if (port_ == 0) port_ = *port;
    }
    if (absl::Status status = PrepareGrpc(); !status.ok()) return status;
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();  // for servers built afterwards
    grpc::ServerBuilder builder;
    SetLimits(&builder);
    // The reflection service answers without checking its callers.
    if (guard_.demanding()) builder.SetOption(std::make_unique<WithoutPlugins>());
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        ServerPortCredentials(options_.credentials));
    builder.RegisterService(&service_);
    builder.RegisterService(health_.service());
    builder.RegisterService(control_.service());
    queue_ = builder.AddCompletionQueue();
    guard_.Start(queue_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      DrainUnusedQueue();
      return absl::UnavailableError("the gRPC server failed to start");
    }
    streams_ = std::make_unique<LauncherStreams>(driver_, &service_, queue_.get(), &calls_, &guard_, &acceptor_,
                                                 options_.limits, options_.epoch);
    LauncherStream::AwaitNext(streams_.get());
    ServeQueries();
    health_.Start(queue_.get(), &calls_, &guard_);
    control_.Start(queue_.get(), &calls_, &guard_, &acceptor_);
    thread_ = std::thread([this] { RunCompletions(queue_.get()); });
    acceptor_.Start([this](int fd) { TakeConnection(fd); });
    return absl::OkStatus();
  }

  void Shutdown() {
    if (server_ == nullptr) return;
    acceptor_.Stop();
    streams_->Shutdown();
    health_.Shutdown();
    control_.Shutdown();
    guard_.Stop();
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    calls_.WaitForNone();
    queue_->Shutdown();
    thread_.join();
    server_.reset();
  }

  int port() const { return port_; }
  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  void TakeConnection(int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = -1;
    connection.fd = fd;
    connections_->HandleNewConnection(&connection);
  }

  void ServeQueries() {
    UnaryCall<v1::ListJobsRequest, v1::ListJobsResponse>::Serve(
        &calls_, &guard_,
        [this](grpc::ServerContext* context, v1::ListJobsRequest* request,
               grpc::ServerAsyncResponseWriter<v1::ListJobsResponse>* responder,
               void* tag) { service_.RequestListJobs(context, request, responder, queue_.get(), queue_.get(), tag); },
        [this](const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
          return ToGrpcStatus(ListJobs(*driver_, request, response));
        });
    UnaryCall<v1::GetJobRequest, v1::Job>::Serve(
        &calls_, &guard_,
        [this](grpc::ServerContext* context, v1::GetJobRequest* request,
               grpc::ServerAsyncResponseWriter<v1::Job>* responder,
               void* tag) { service_.RequestGetJob(context, request, responder, queue_.get(), queue_.get(), tag); },
        [this](const v1::GetJobRequest& request, v1::Job* response) {
          return ToGrpcStatus(GetJob(*driver_, request, response));
        });
  }

  // gRPC requires every queue to be drained before its destruction.
  void DrainUnusedQueue() {
    queue_->Shutdown();
    RunCompletions(queue_.get());
  }

  Driver* const driver_;
  const ServerOptions options_;
  CallCounter calls_;
  CallGuard guard_;
  Acceptor acceptor_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;  // gRPC's side of it
  AsyncRendezvous service_;
  HealthService health_;
  ControlService control_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<LauncherStreams> streams_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> addresses_;
  int port_ = 0;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Driver* driver, const std::vector<std::string>& listen_addresses,
                                                      const ServerOptions& options) {
  if (listen_addresses.empty()) return absl::InvalidArgumentError("no address to listen on");
  std::vector<Endpoint> listen;
  for (const std::string& text : listen_addresses) {
    absl::StatusOr<Endpoint> address = ParseEndpoint(text);
    if (!address.ok()) return address.status();
    listen.push_back(*std::move(address));
  }
  auto impl = std::make_unique<Impl>(driver, options);
  const absl::Status status = impl->Start(listen);
  if (!status.ok()) return status;
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
int Server::port() const { return impl_->port(); }
const std::vector<std::string>& Server::addresses() const { return impl_->addresses(); }
void Server::Shutdown() { impl_->Shutdown(); }

}  // namespace ddprun::rendezvous

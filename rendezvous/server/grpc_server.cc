#include "rendezvous/server/grpc_server.h"

#include "base/endpoint.h"
#include "base/status_macros.h"
#include "rendezvous/wire/channel_security.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kMaxStreamsPerConnection = 100;  // a launcher needs one
constexpr int kMaxIdleMs = 15'000;             // for a connection without streams
constexpr int kHandshakeTimeoutMs = 5'000;     // until a connection has begun to speak HTTP/2

}  // namespace

GrpcServer::GrpcServer(const Credentials& credentials, const ConnectionLimits::Limits& limits)
    : credentials_(credentials),
      guard_(credentials),
      acceptor_(credentials.tls_cert.empty() ? Acceptor::Protocol::kHttp2 : Acceptor::Protocol::kTls, limits) {}

absl::Status GrpcServer::Listen(const std::vector<std::string>& addresses, int listener) {
  if (addresses.empty()) return absl::InvalidArgumentError("no address to listen on");
  std::vector<Endpoint> endpoints;
  for (const std::string& text : addresses) {
    DDPRUN_ASSIGN_OR_RETURN(Endpoint address, ParseEndpoint(text));
    endpoints.push_back(std::move(address));
  }
  for (const Endpoint& address : endpoints) {
    DDPRUN_ASSIGN_OR_RETURN(const int port,
                            listener >= 0 ? acceptor_.Adopt(listener, address.port) : acceptor_.Listen(address));
    addresses_.push_back(Endpoint{address.host, port}.ToString());
    if (port_ == 0) port_ = port;
  }
  return absl::OkStatus();
}

absl::Status GrpcServer::Start(const std::function<void(grpc::ServerBuilder*)>& configure,
                               const std::function<void()>& await_calls) {
  DDPRUN_RETURN_IF_ERROR(PrepareGrpc());
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxReceivedBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  configure(&builder);
  connections_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, ServerPortCredentials(credentials_));
  queue_ = builder.AddCompletionQueue();
  guard_.Start(queue_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    queue_->Shutdown();
    RunCompletions(queue_.get());  // gRPC requires every queue to be drained before its destruction
    return absl::UnavailableError("the gRPC server failed to start");
  }
  await_calls();
  thread_ = std::thread([this] { RunCompletions(queue_.get()); });
  acceptor_.Start([this](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = -1;
    connection.fd = fd;
    connections_->HandleNewConnection(&connection);
  });
  return absl::OkStatus();
}

void GrpcServer::Shutdown(std::chrono::milliseconds grace, const std::function<void()>& end_calls) {
  if (server_ == nullptr) return;
  acceptor_.Stop();
  end_calls();
  guard_.Stop();
  server_->Shutdown(std::chrono::system_clock::now() + grace);
  calls_.WaitForNone();
  queue_->Shutdown();
  thread_.join();
  server_.reset();
}

}  // namespace ddprun::rendezvous

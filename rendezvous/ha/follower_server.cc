#include "rendezvous/ha/follower_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/endpoint.h"
#include "rendezvous/server/acceptor.h"
#include "rendezvous/server/call_counter.h"
#include "rendezvous/server/call_guard.h"
#include "rendezvous/server/peer_address.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/channel_security.h"
#include "rendezvous/wire/completion.h"
#include "rendezvous/wire/leader_hint.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kMaxStreamsPerConnection = 100;
constexpr int kMaxIdleMs = 15'000;
constexpr int kHandshakeTimeoutMs = 5'000;
constexpr auto kShutdownGrace = std::chrono::milliseconds(200);

// State shared by all calls of one server.
struct Calls {
  LeaderLookup* lookup;
  Acceptor* acceptor;
  CallGuard* guard;
  grpc::AsyncGenericService service;
  grpc::ServerCompletionQueue* queue = nullptr;
  CallCounter counter;
};

// One call of any method. Owns itself; deleted when it is over.
class FollowerCall {
 public:
  static void AwaitNext(Calls* calls) {
    auto* call = new FollowerCall(calls);
    calls->service.RequestCall(&call->context_, &call->stream_, calls->queue, calls->queue,
                               static_cast<Completion*>(&call->accepted_tag_));
  }

 private:
  explicit FollowerCall(Calls* calls) : calls_(calls), token_(&calls->counter) {}

  void OnAccepted(bool ok) {
    if (!ok) {  // the server is shutting down: there is no call
      delete this;
      return;
    }
    AwaitNext(calls_);
    peer_ = PeerOfCall(context_.peer());
    if (!calls_->acceptor->OnStreamStarted(peer_)) {
      return Refuse(absl::ResourceExhaustedError("too many streams on one connection to a follower"));
    }
    calls_->guard->Check(context_, Role::kRead,
                         [this](const absl::StatusOr<Caller>& caller) { OnChecked(caller.status()); });
  }

  void OnChecked(const absl::Status& status) {
    if (!status.ok()) return Refuse(status);
    // As a Join does on the leader: while there is no leader, all launchers ask repeatedly, and those that get no
    // answer in time stop their workers. Many of them may share one address.
    calls_->acceptor->OnSessionStarted(peer_);
    in_session_ = true;
    calls_->lookup->Ask([this](const absl::StatusOr<LeaderView>& view) { OnAnswer(view); });
  }

  void OnAnswer(const absl::StatusOr<LeaderView>& view) {
    context_.AddTrailingMetadata(kFollowerKey, "1");
    if (!view.ok()) {
      return End(absl::FailedPreconditionError(
          absl::StrCat("a follower that cannot determine the leader: ", view.status().message())));
    }
    context_.AddTrailingMetadata(kEpochKey, absl::StrCat(view->epoch));
    if (view->address.empty()) {
      return End(absl::FailedPreconditionError("a follower; there is currently no leader"));
    }
    context_.AddTrailingMetadata(kLeaderKey, view->address);
    End(absl::FailedPreconditionError(absl::StrCat("a follower; the leader is ", view->address)));
  }

  // A refused caller learns only that this is a server.
  void Refuse(const absl::Status& status) {
    context_.AddTrailingMetadata(kServerMarker, "1");
    End(status);
  }

  void End(const absl::Status& status) {
    stream_.Finish(ToGrpcStatus(status), static_cast<Completion*>(&finished_tag_));
  }

  void OnFinished(bool) {
    if (in_session_) calls_->acceptor->OnSessionClosed(peer_);
    delete this;
  }

  Calls* const calls_;
  const CallCounter::Token token_;
  PeerAddress peer_;
  bool in_session_ = false;  // authenticated
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  MemberCompletion<FollowerCall, &FollowerCall::OnAccepted> accepted_tag_{this};
  MemberCompletion<FollowerCall, &FollowerCall::OnFinished> finished_tag_{this};
};

}  // namespace

class FollowerServer::Impl {
 public:
  Impl(LeaderLookup* lookup, const ServerOptions& options)
      : options_(options),
        guard_(options.credentials),
        acceptor_(options.credentials.tls_cert.empty() ? Acceptor::Protocol::kHttp2 : Acceptor::Protocol::kTls,
                  options.connections) {
    calls_.lookup = lookup;
    calls_.acceptor = &acceptor_;
    calls_.guard = &guard_;
  }
  ~Impl() { Shutdown(); }

  absl::Status Start(const std::vector<std::string>& listen) {
    for (const std::string& text : listen) {
      const absl::StatusOr<Endpoint> address = ParseEndpoint(text);
      if (!address.ok()) return address.status();
      const absl::StatusOr<int> port = acceptor_.Listen(*address);
      if (!port.ok()) return port.status();
      addresses_.push_back(Endpoint{address->host, *port}.ToString());
    }
    if (absl::Status status = PrepareGrpc(); !status.ok()) return status;
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxReceivedBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        ServerPortCredentials(options_.credentials));
    builder.RegisterAsyncGenericService(&calls_.service);
    queue_ = builder.AddCompletionQueue();
    calls_.queue = queue_.get();
    guard_.Start(queue_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) {
      queue_->Shutdown();
      RunCompletions(queue_.get());  // gRPC requires every queue to be drained before its destruction
      return absl::UnavailableError("the gRPC server failed to start");
    }
    FollowerCall::AwaitNext(&calls_);
    thread_ = std::thread([this] { RunCompletions(queue_.get()); });
    acceptor_.Start([this](int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.listener_fd = -1;
      connection.fd = fd;
      connections_->HandleNewConnection(&connection);
    });
    return absl::OkStatus();
  }

  void Shutdown() {
    if (server_ == nullptr) return;
    acceptor_.Stop();
    calls_.lookup->Stop();
    guard_.Stop();
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    calls_.counter.WaitForNone();
    queue_->Shutdown();
    thread_.join();
    server_.reset();
  }

  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  const ServerOptions options_;
  CallGuard guard_;
  Acceptor acceptor_;
  Calls calls_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> addresses_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<FollowerServer>> FollowerServer::Start(LeaderLookup* lookup,
                                                                      const std::vector<std::string>& listen_addresses,
                                                                      const ServerOptions& options) {
  if (listen_addresses.empty()) return absl::InvalidArgumentError("no address to listen on");
  auto impl = std::make_unique<Impl>(lookup, options);
  if (absl::Status status = impl->Start(listen_addresses); !status.ok()) return status;
  return std::unique_ptr<FollowerServer>(new FollowerServer(std::move(impl)));
}

FollowerServer::FollowerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FollowerServer::~FollowerServer() = default;
const std::vector<std::string>& FollowerServer::addresses() const { return impl_->addresses(); }
void FollowerServer::Shutdown() { impl_->Shutdown(); }

}  // namespace ddprun::rendezvous

#include "rendezvous/ha/follower_server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "rendezvous/ha/leadership.h"
#include "rendezvous/server/client_limits.h"
#include "rendezvous/server/grpc_server.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/completion.h"
#include "rendezvous/wire/leader_hint.h"

namespace ddprun::rendezvous {
namespace {

constexpr auto kShutdownGrace = std::chrono::milliseconds(200);
// Launchers that wait longer should try another server instead.
constexpr absl::Duration kPatience = absl::Seconds(2);

// Looks up the leader for many concurrent callers. One query to etcd answers all requests made before it was sent, and
// none made later, so each answer was true at some time after its request. Thread-safe.
class LeaderLookup {
 public:
  using Done = std::function<void(const absl::StatusOr<LeaderView>&)>;

  LeaderLookup(EtcdClient* client, const EtcdKeys& keys) : client_(client), keys_(keys), thread_([this] { Run(); }) {}
  ~LeaderLookup() { Stop(); }

  // Calls `done` once: on the lookup's thread, or at once with CANCELLED if the lookup is stopped.
  void Ask(Done done) {
    bool stopped = false;
    {
      MutexLock lock(&mutex_);
      stopped = stopping_;
      if (!stopped) waiting_.push_back(std::move(done));
    }
    if (stopped) return done(absl::CancelledError("stopping"));
    wake_.NotifyAll();
  }

  // Answers pending and later requests with CANCELLED. Later calls do nothing.
  void Stop() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
    }
    wake_.NotifyAll();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    while (true) {
      std::vector<Done> asked;
      bool stop = false;
      {
        MutexLock lock(&mutex_);
        while (waiting_.empty() && !stopping_) wake_.Wait(&mutex_);
        asked.swap(waiting_);
        stop = stopping_;
      }
      const absl::StatusOr<LeaderView> view = stop ? absl::StatusOr<LeaderView>(absl::CancelledError("stopping"))
                                                   : AskForLeader(client_, keys_, SteadyNow() + kPatience);
      for (const Done& done : asked) done(view);
      if (stop) return;
    }
  }

  EtcdClient* const client_;
  const EtcdKeys keys_;
  Mutex mutex_;
  CondVar wake_;
  std::vector<Done> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: started when all else exists
};

// One call of any method, which ends with the answer about the leader.
class FollowerCall final : public AsyncCall<grpc::GenericServerContext> {
 public:
  FollowerCall(GrpcServer* server, grpc::AsyncGenericService* service, LeaderLookup* lookup)
      : AsyncCall(server, Role::kRead), service_(service), lookup_(lookup) {
    service->RequestCall(&context_, &stream_, server->queue(), server->queue(), accepted_tag());
  }

 private:
  ~FollowerCall() override {
    if (in_session_) server()->acceptor()->OnSessionClosed(peer_);
  }

  void AwaitNext() override { new FollowerCall(server(), service_, lookup_); }

  absl::Status Admit() override {
    peer_ = PeerOfCall(context_.peer());
    if (server()->acceptor()->OnStreamStarted(peer_)) return absl::OkStatus();
    return absl::ResourceExhaustedError("too many streams on one connection to a follower");
  }

  void OnChecked(const absl::StatusOr<Caller>& caller) override {
    Begin();
    if (!caller.ok()) {
      context_.AddTrailingMetadata(kServerMarker, "1");  // a refused caller learns only that this is a server
      return End(caller.status());
    }
    // As a Join does on the leader: while there is no leader, all launchers ask repeatedly, and those that get no
    // answer in time stop their workers. Many of them may share one address.
    server()->acceptor()->OnSessionStarted(peer_);
    in_session_ = true;
    lookup_->Ask([this](const absl::StatusOr<LeaderView>& view) { OnAnswer(view); });
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

  void End(const absl::Status& status) {
    stream_.Finish(ToGrpcStatus(status), static_cast<Completion*>(&finished_tag_));
  }

  void OnFinished(bool) { OperationOver(); }

  grpc::AsyncGenericService* const service_;
  LeaderLookup* const lookup_;
  PeerAddress peer_;
  bool in_session_ = false;  // authenticated
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  MemberCompletion<FollowerCall, &FollowerCall::OnFinished> finished_tag_{this};
};

}  // namespace

class FollowerServer::Impl {
 public:
  Impl(EtcdClient* client, const EtcdKeys& keys, const ServerOptions& options)
      : lookup_(client, keys), grpc_(options.credentials, options.connections) {}
  ~Impl() { Shutdown(); }

  absl::Status Start(const std::vector<std::string>& listen) {
    DDPRUN_RETURN_IF_ERROR(grpc_.Listen(listen));
    return grpc_.Start([this](grpc::ServerBuilder* builder) { builder->RegisterAsyncGenericService(&service_); },
                       [this] { new FollowerCall(&grpc_, &service_, &lookup_); });
  }

  void Shutdown() {
    grpc_.Shutdown(kShutdownGrace, [this] { lookup_.Stop(); });
  }

  const std::vector<std::string>& addresses() const { return grpc_.addresses(); }

 private:
  LeaderLookup lookup_;
  GrpcServer grpc_;
  grpc::AsyncGenericService service_;
};

absl::StatusOr<std::unique_ptr<FollowerServer>> FollowerServer::Start(EtcdClient* client, const EtcdKeys& keys,
                                                                      const std::vector<std::string>& listen_addresses,
                                                                      const ServerOptions& options) {
  auto impl = std::make_unique<Impl>(client, keys, options);
  DDPRUN_RETURN_IF_ERROR(impl->Start(listen_addresses));
  return std::unique_ptr<FollowerServer>(new FollowerServer(std::move(impl)));
}

FollowerServer::FollowerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FollowerServer::~FollowerServer() = default;
const std::vector<std::string>& FollowerServer::addresses() const { return impl_->addresses(); }
void FollowerServer::Shutdown() { impl_->Shutdown(); }

}  // namespace ddprun::rendezvous

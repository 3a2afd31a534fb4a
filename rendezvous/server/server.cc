#include "rendezvous/server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/resource_quota.h>

#include <chrono>
#include <unordered_set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "proto/health.grpc.pb.h"
#include "rendezvous/server/control_service.h"
#include "rendezvous/server/grpc_server.h"
#include "rendezvous/server/job_queries.h"
#include "rendezvous/server/launcher_stream.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

constexpr size_t kMaxMemoryBytes = 512 << 20;  // for gRPC's buffers
constexpr int kMaxReflectionThreads = 8;
// Heartbeats detect lost peers; keepalive only frees their connections. The timeout is long because the end of a
// connection counts as the loss of its launcher, which silence may cause only long after the heartbeats (protocol 4.5).
constexpr int kKeepaliveTimeMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 1'200'000;
constexpr int kIdlePollMs = 3'600'000;      // poll of the reflection service's thread; avoids needless wake-ups
constexpr size_t kMaxHealthWatches = 1000;  // bounds memory; a client needs one
constexpr auto kShutdownGrace = std::chrono::seconds(1);

void SetLimits(grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota("rendezvous");
  quota.Resize(kMaxMemoryBytes).SetMaxThreads(kMaxReflectionThreads);
  builder->SetResourceQuota(quota);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
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

bool IsServed(const std::string& service) { return service.empty() || service == v1::Rendezvous::service_full_name(); }

// gRPC's standard health service (proto/health.proto): reports SERVING until Shutdown. Its calls run on the queue's
// thread; Shutdown may be called by any thread. Must outlive the server's calls.
class HealthService {
 public:
  using Async = grpc::health::v1::Health::WithAsyncMethod_Check<
      grpc::health::v1::Health::WithAsyncMethod_Watch<grpc::health::v1::Health::Service>>;

  // Register it with the server before that starts.
  Async* service() { return &service_; }

  // Awaits the first call of each method.
  void Start(GrpcServer* server) {
    UnaryCall<HealthCheckRequest, HealthCheckResponse>::Serve(
        server,
        [this, server](grpc::ServerContext* context, HealthCheckRequest* request,
                       grpc::ServerAsyncResponseWriter<HealthCheckResponse>* responder, void* tag) {
          service_.RequestCheck(context, request, responder, server->queue(), server->queue(), tag);
        },
        [](const HealthCheckRequest& request, HealthCheckResponse* response) {
          if (!IsServed(request.service())) {
            return grpc::Status(grpc::StatusCode::NOT_FOUND, "unknown service " + request.service());
          }
          response->set_status(HealthCheckResponse::SERVING);
          return grpc::Status::OK;
        });
    new Watch(this, server);
  }

  // Ends all watches.
  void Shutdown() {
    MutexLock lock(&mutex_);
    shut_down_ = true;
    for (Watch* watch : watches_) watch->Cancel();
  }

 private:
  // One Watch call: sends the state once, because it does not change until the server shuts down.
  class Watch final : public AsyncCall<> {
   public:
    Watch(HealthService* health, GrpcServer* server) : AsyncCall(server, Role::kRead), health_(health) {
      NotifyWhenDone();
      health->service_.RequestWatch(&context_, &request_, &writer_, server->queue(), server->queue(), accepted_tag());
    }

   private:
    ~Watch() override {
      if (listed_) health_->Remove(this);
    }

    void AwaitNext() override { new Watch(health_, server()); }

    void OnChecked(const absl::StatusOr<Caller>& caller) override {
      Begin();
      if (!caller.ok()) return writer_.Finish(ToGrpcStatus(caller.status()), static_cast<Completion*>(&written_tag_));
      listed_ = health_->Add(this);
      HealthCheckResponse response;
      response.set_status(IsServed(request_.service()) ? HealthCheckResponse::SERVING
                                                       : HealthCheckResponse::SERVICE_UNKNOWN);
      writer_.Write(response, static_cast<Completion*>(&written_tag_));
      if (!listed_) Cancel();
    }

    void OnWritten(bool) { OperationOver(); }

    HealthService* const health_;
    HealthCheckRequest request_;
    grpc::ServerAsyncWriter<HealthCheckResponse> writer_{&context_};
    bool listed_ = false;
    MemberCompletion<Watch, &Watch::OnWritten> written_tag_{this};
  };

  // Returns false if the service is shut down or full.
  bool Add(Watch* watch) {
    MutexLock lock(&mutex_);
    if (shut_down_ || watches_.size() >= kMaxHealthWatches) return false;
    watches_.insert(watch);
    return true;
  }

  void Remove(Watch* watch) {
    MutexLock lock(&mutex_);
    watches_.erase(watch);
  }

  Async service_;
  Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::unordered_set<Watch*> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

class Server::Impl {
 public:
  Impl(Driver* driver, const ServerOptions& options)
      : driver_(driver), options_(options), grpc_(options.credentials, options.connections), control_(driver) {}
  ~Impl() { Shutdown(); }

  absl::Status Start(const std::vector<std::string>& listen) {
    DDPRUN_RETURN_IF_ERROR(grpc_.Listen(listen, options_.listener));
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();  // for servers built afterwards
    return grpc_.Start(
        [this](grpc::ServerBuilder* builder) {
          SetLimits(builder);
          // The reflection service answers without checking its callers.
          if (grpc_.guard()->demanding()) builder->SetOption(std::make_unique<WithoutPlugins>());
          builder->RegisterService(&service_);
          builder->RegisterService(health_.service());
          builder->RegisterService(control_.service());
        },
        [this] {
          streams_ = std::make_unique<LauncherStreams>(driver_, &service_, &grpc_, options_.limits, options_.epoch);
          LauncherStream::AwaitNext(streams_.get());
          ServeQueries();
          health_.Start(&grpc_);
          control_.Start(&grpc_);
        });
  }

  void Shutdown() {
    grpc_.Shutdown(kShutdownGrace, [this] {
      streams_->Shutdown();
      health_.Shutdown();
      control_.Shutdown();
    });
  }

  const GrpcServer& grpc() const { return grpc_; }

 private:
  void ServeQueries() {
    UnaryCall<v1::ListJobsRequest, v1::ListJobsResponse>::Serve(
        &grpc_,
        [this](grpc::ServerContext* context, v1::ListJobsRequest* request,
               grpc::ServerAsyncResponseWriter<v1::ListJobsResponse>* responder,
               void* tag) { service_.RequestListJobs(context, request, responder, grpc_.queue(), grpc_.queue(), tag); },
        [this](const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
          return ToGrpcStatus(ListJobs(*driver_, request, response));
        });
    UnaryCall<v1::GetJobRequest, v1::Job>::Serve(
        &grpc_,
        [this](grpc::ServerContext* context, v1::GetJobRequest* request,
               grpc::ServerAsyncResponseWriter<v1::Job>* responder,
               void* tag) { service_.RequestGetJob(context, request, responder, grpc_.queue(), grpc_.queue(), tag); },
        [this](const v1::GetJobRequest& request, v1::Job* response) {
          return ToGrpcStatus(GetJob(*driver_, request, response));
        });
  }

  Driver* const driver_;
  const ServerOptions options_;
  GrpcServer grpc_;
  AsyncRendezvous service_;
  HealthService health_;
  ControlService control_;
  std::unique_ptr<LauncherStreams> streams_;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Driver* driver, const std::vector<std::string>& listen_addresses,
                                                      const ServerOptions& options) {
  auto impl = std::make_unique<Impl>(driver, options);
  DDPRUN_RETURN_IF_ERROR(impl->Start(listen_addresses));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
int Server::port() const { return impl_->grpc().port(); }
const std::vector<std::string>& Server::addresses() const { return impl_->grpc().addresses(); }
void Server::Shutdown() { impl_->Shutdown(); }

}  // namespace ddprun::rendezvous

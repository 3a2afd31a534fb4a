#include "rendezvous/server/health_service.h"

#include <string>

#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/server/unary_call.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

bool IsServed(const std::string& service) { return service.empty() || service == v1::Rendezvous::service_full_name(); }

grpc::Status Check(const HealthCheckRequest& request, HealthCheckResponse* response) {
  if (!IsServed(request.service())) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "unknown service " + request.service());
  }
  response->set_status(HealthCheckResponse::SERVING);
  return grpc::Status::OK;
}

}  // namespace

// One Watch call: sends the state once, because it does not change until the server shuts down. Owns itself; deleted by
// HealthService's queue when the call is over.
class HealthWatch {
 public:
  static void AwaitNext(HealthService* health) {
    auto* watch = new HealthWatch(health);
    grpc::ServerCompletionQueue* const queue = health->queue_;
    watch->context_.AsyncNotifyWhenDone(static_cast<Completion*>(&watch->done_tag_));
    health->service()->RequestWatch(&watch->context_, &watch->request_, &watch->writer_, queue, queue,
                                    static_cast<Completion*>(&watch->accepted_tag_));
  }

  // Any thread, while the service lists the watch.
  void Stop() { context_.TryCancel(); }

 private:
  explicit HealthWatch(HealthService* health) : health_(health), token_(health->calls_) {}

  void OnAccepted(bool ok) {
    if (!ok) {  // no call, so OnDone never comes
      delete this;
      return;
    }
    AwaitNext(health_);
    pending_ = 2;  // OnDone, and the operation that OnChecked starts
    health_->guard_->Check(context_, Role::kRead,
                           [this](const absl::StatusOr<Caller>& caller) { OnChecked(caller.status()); });
  }

  void OnChecked(const absl::Status& status) {
    if (!status.ok()) return writer_.Finish(ToGrpcStatus(status), static_cast<Completion*>(&written_tag_));
    listed_ = health_->Add(this);
    HealthCheckResponse response;
    response.set_status(IsServed(request_.service()) ? HealthCheckResponse::SERVING
                                                     : HealthCheckResponse::SERVICE_UNKNOWN);
    writer_.Write(response, static_cast<Completion*>(&written_tag_));
    if (!listed_) Stop();
  }

  void OnWritten(bool) { DeleteIfOver(); }

  // The call was cancelled by the client or the server.
  void OnDone(bool) { DeleteIfOver(); }

  void DeleteIfOver() {
    if (--pending_ > 0) return;
    if (listed_) health_->Remove(this);
    delete this;
  }

  HealthService* const health_;
  const CallCounter::Token token_;
  grpc::ServerContext context_;
  HealthCheckRequest request_;
  grpc::ServerAsyncWriter<HealthCheckResponse> writer_{&context_};
  int pending_ = 0;  // operations in flight
  bool listed_ = false;
  MemberCompletion<HealthWatch, &HealthWatch::OnAccepted> accepted_tag_{this};
  MemberCompletion<HealthWatch, &HealthWatch::OnWritten> written_tag_{this};
  MemberCompletion<HealthWatch, &HealthWatch::OnDone> done_tag_{this};
};

void HealthService::Start(grpc::ServerCompletionQueue* queue, CallCounter* calls, CallGuard* guard) {
  queue_ = queue;
  calls_ = calls;
  guard_ = guard;
  UnaryCall<HealthCheckRequest, HealthCheckResponse>::Serve(
      calls, guard,
      [this](grpc::ServerContext* context, HealthCheckRequest* request,
             grpc::ServerAsyncResponseWriter<HealthCheckResponse>* responder,
             void* tag) { service_.RequestCheck(context, request, responder, queue_, queue_, tag); },
      Check);
  HealthWatch::AwaitNext(this);
}

void HealthService::Shutdown() {
  MutexLock lock(&mutex_);
  shut_down_ = true;
  for (HealthWatch* watch : watches_) watch->Stop();
}

bool HealthService::Add(HealthWatch* watch) {
  MutexLock lock(&mutex_);
  if (shut_down_ || watches_.size() >= kMaxWatches) return false;
  watches_.insert(watch);
  return true;
}

void HealthService::Remove(HealthWatch* watch) {
  MutexLock lock(&mutex_);
  watches_.erase(watch);
}

}  // namespace ddprun::rendezvous

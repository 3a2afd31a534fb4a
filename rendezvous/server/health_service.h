#ifndef DDPRUN_RENDEZVOUS_SERVER_HEALTH_SERVICE_H_
#define DDPRUN_RENDEZVOUS_SERVER_HEALTH_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "proto/health.grpc.pb.h"
#include "rendezvous/server/call_counter.h"
#include "rendezvous/server/call_guard.h"

namespace ddprun::rendezvous {

class HealthWatch;

// gRPC's standard health service (proto/health.proto): reports SERVING until Shutdown. Runs on the completion queue's
// thread; Shutdown may be called by any thread. Outlives the queue's thread.
class HealthService {
 public:
  using Async = grpc::health::v1::Health::WithAsyncMethod_Check<
      grpc::health::v1::Health::WithAsyncMethod_Watch<grpc::health::v1::Health::Service>>;

  // Register it with the server before that starts.
  Async* service() { return &service_; }

  // Starts serving. REQUIRES: the server has started.
  void Start(grpc::ServerCompletionQueue* queue, CallCounter* calls, CallGuard* guard);

  // Ends all watches.
  void Shutdown();

 private:
  friend class HealthWatch;
  // Bounds memory; a client needs only one watch.
  static constexpr size_t kMaxWatches = 1000;

  bool Add(HealthWatch* watch);  // false if shut down or full
  void Remove(HealthWatch* watch);

  Async service_;
  grpc::ServerCompletionQueue* queue_ = nullptr;
  CallCounter* calls_ = nullptr;
  CallGuard* guard_ = nullptr;
  Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::unordered_set<HealthWatch*> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_HEALTH_SERVICE_H_

#ifndef DDPRUN_RENDEZVOUS_SERVER_CONTROL_SERVICE_H_
#define DDPRUN_RENDEZVOUS_SERVER_CONTROL_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "base/socket_owner.h"
#include "proto/control.grpc.pb.h"
#include "rendezvous/core/command.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/grpc_server.h"

namespace ddprun::rendezvous {

class EventStream;

// Serves the events and commands of a Driver (proto/control.proto) as part of a GrpcServer. Thread-safe. Must outlive
// the server's calls.
class ControlService {
 public:
  static constexpr size_t kMaxWatchers = 100;
  // Limits on watchers of unauthenticated callers: in total, and per address.
  static constexpr size_t kMaxUnauthenticated = 50;
  static constexpr size_t kMaxPerAddress = 16;

  explicit ControlService(Driver* driver) : driver_(driver) {}

  grpc::Service* service() { return &service_; }

  // Awaits the first call of each method. Call once, when `server` starts.
  void Start(GrpcServer* server);

  // Ends all event streams, and later ones at once. Commands that wait for a record are answered.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class EventStream;

  template <typename Request>
  using RequestMethod = void (v1::Control::AsyncService::*)(grpc::ServerContext*, Request*,
                                                            grpc::ServerAsyncResponseWriter<v1::CommandResponse>*,
                                                            grpc::CompletionQueue*, grpc::ServerCompletionQueue*,
                                                            void*);
  template <typename Request>
  void Serve(RequestMethod<Request> method, Role needed, std::function<Command(const Request&)> command_of);
  void ServeInspect();
  // Checks that the caller may give commands, as far as that depends on the connection (CheckUser).
  absl::Status CheckCommander(const std::string& peer);
  // Checks that the caller of a call without credentials is this server's user or root.
  //   PERMISSION_DENIED  the caller is another user, or the kernel does not tell which.
  absl::Status CheckUser(const std::string& peer);
  // Registers a call, so that Shutdown ends it.
  //   RESOURCE_EXHAUSTED  there are too many watchers.
  //   UNAVAILABLE         Shutdown was called.
  absl::Status Add(EventStream* stream, const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(EventStream* stream) ABSL_LOCKS_EXCLUDED(mutex_);

  Driver* const driver_;
  v1::Control::AsyncService service_;
  GrpcServer* server_ = nullptr;
  SocketOwner socket_owner_;  // queue's thread only
  Mutex mutex_;
  // Maps each stream to the address of an unauthenticated caller, else to "".
  std::map<EventStream*, std::string> streams_ ABSL_GUARDED_BY(mutex_);
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CONTROL_SERVICE_H_

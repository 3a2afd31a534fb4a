#ifndef DDPRUN_RENDEZVOUS_SERVER_GRPC_SERVER_H_
#define DDPRUN_RENDEZVOUS_SERVER_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/server/acceptor.h"
#include "rendezvous/server/call_guard.h"
#include "rendezvous/server/client_limits.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/completion.h"

// The frame of a gRPC server: GrpcServer listens, accepts connections within limits and runs one completion queue on
// one thread; the calls on that queue are objects that own themselves and share the base class AsyncCall. Server serves
// launchers in this frame, and a follower (ha/follower_server.h) refuses them.
namespace ddprun::rendezvous {

// Counts the calls that may still start gRPC operations. gRPC's queue must not be shut down before the count is zero
// (gRPC aborts the process if an operation is started later). Thread-safe.
class CallCounter {
 public:
  // Held by each call for its whole lifetime, which begins when the call is awaited.
  class Token {
   public:
    explicit Token(CallCounter* counter) : counter_(counter) {
      MutexLock lock(&counter_->mutex_);
      ++counter_->calls_;
    }
    ~Token() {
      // Notified under the lock: the counter may be destroyed as soon as the count is zero.
      MutexLock lock(&counter_->mutex_);
      if (--counter_->calls_ == 0) counter_->none_.NotifyAll();
    }
    Token(const Token&) = delete;
    Token& operator=(const Token&) = delete;

   private:
    CallCounter* const counter_;
  };

  void WaitForNone() {
    MutexLock lock(&mutex_);
    while (calls_ > 0) none_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar none_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A gRPC server behind an Acceptor. Start and Shutdown belong to one thread.
class GrpcServer {
 public:
  GrpcServer(const Credentials& credentials, const ConnectionLimits::Limits& limits);
  // REQUIRES: the server was not started, or was shut down.
  ~GrpcServer() = default;

  // Listens on all addresses ("127.0.0.1:29400", "[::1]:0"; port 0 selects a free one), or takes over `listener`, a
  // socket that listens at all addresses of this host, unless it is -1. Call before Start.
  //   ALREADY_EXISTS    one of the addresses is in use.
  //   INVALID_ARGUMENT  one is malformed, or none is given.
  //   others            see Listen (listen.h).
  absl::Status Listen(const std::vector<std::string>& addresses, int listener = -1);

  // Starts serving. `configure` registers services and sets options, `await_calls` awaits the first call of each
  // method.
  //   UNAVAILABLE  gRPC failed to start.
  absl::Status Start(const std::function<void(grpc::ServerBuilder*)>& configure,
                     const std::function<void()>& await_calls);

  // Stops accepting connections, runs `end_calls`, and ends calls that are still open after `grace`. When it returns,
  // the queue's thread has ended. Later calls do nothing.
  void Shutdown(std::chrono::milliseconds grace, const std::function<void()>& end_calls);

  // Port of the first address.
  int port() const { return port_; }
  // The addresses as given, with their actual ports.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // The objects that calls use. The queue exists once Start runs.
  grpc::ServerCompletionQueue* queue() { return queue_.get(); }
  CallCounter* calls() { return &calls_; }
  CallGuard* guard() { return &guard_; }
  Acceptor* acceptor() { return &acceptor_; }

 private:
  const Credentials credentials_;
  CallCounter calls_;
  CallGuard guard_;
  Acceptor acceptor_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;  // gRPC's side of acceptor_
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> addresses_;
  int port_ = 0;
  std::thread thread_;
};

// Base class of a call that owns itself. Its life:
//   1. The constructor of the derived class requests the next call of its method from gRPC, with accepted_tag().
//   2. When gRPC accepts the call: AwaitNext() creates the object for the next call of the method. Admit() may refuse
//      the call, else the guard checks the caller. OnChecked() receives the result and starts the operations of the
//      call.
//   3. The object counts the operations that have not completed: the derived class calls Begin() before it starts one,
//      and OperationOver() at the end of each completion. The last one deletes the object.
// If the server shuts down while the object waits for a call, the object is deleted without any of this. All functions
// run on the queue's thread, except for Cancel and Begin. `Context` is grpc::ServerContext or GenericServerContext.
template <typename Context = grpc::ServerContext>
class AsyncCall {
 private:
  const CallCounter::Token token_;  // first: destroyed after the context

 public:
  // Cancels the call. May be called by any thread while the object exists.
  void Cancel() { context_.TryCancel(); }

 protected:
  // `needed`: the role that callers must have.
  AsyncCall(GrpcServer* server, Role needed) : token_(server->calls()), server_(server), needed_(needed) {}
  virtual ~AsyncCall() = default;

  virtual void AwaitNext() = 0;
  virtual absl::Status Admit() { return absl::OkStatus(); }
  virtual void OnChecked(const absl::StatusOr<Caller>& caller) = 0;
  // Called when the call is cancelled or over, if NotifyWhenDone was called.
  virtual void OnDone() {}

  // Requests OnDone. Call before the call is requested from gRPC.
  void NotifyWhenDone() {
    notifies_ = true;
    context_.AsyncNotifyWhenDone(static_cast<Completion*>(&done_tag_));
  }

  void* accepted_tag() { return static_cast<Completion*>(&accepted_tag_); }
  GrpcServer* server() const { return server_; }
  Role needed() const { return needed_; }

  void Begin() { ++operations_; }
  void OperationOver() {
    if (--operations_ == 0) delete this;
  }

  Context context_;

 private:
  void OnAccepted(bool ok) {
    if (!ok) {  // the server is shutting down: there is no call, and OnDone is not called
      delete this;
      return;
    }
    AwaitNext();
    operations_ = notifies_ ? 2 : 1;  // this function, and OnDone
    if (absl::Status status = Admit(); !status.ok()) return OnCheckDone(status);
    server_->guard()->Check(context_, needed_, [this](const absl::StatusOr<Caller>& caller) { OnCheckDone(caller); });
  }
  void OnCheckDone(const absl::StatusOr<Caller>& caller) {
    OnChecked(caller);
    OperationOver();
  }
  void OnDoneTag(bool) {
    OnDone();
    OperationOver();
  }

  GrpcServer* const server_;
  const Role needed_;
  bool notifies_ = false;
  std::atomic<int> operations_ = 0;
  MemberCompletion<AsyncCall, &AsyncCall::OnAccepted> accepted_tag_{this};
  MemberCompletion<AsyncCall, &AsyncCall::OnDoneTag> done_tag_{this};
};

// Serves all calls of one unary method.
template <typename Request, typename Response>
class UnaryCall final : public AsyncCall<> {
 public:
  using Responder = grpc::ServerAsyncResponseWriter<Response>;
  // Requests the method's next call from gRPC.
  using Await = std::function<void(grpc::ServerContext*, Request*, Responder*, void* tag)>;
  using Handle = std::function<grpc::Status(const Request&, Response*)>;
  // Fills in the response and calls `answer` once, now or later, from any thread.
  using HandleLater = std::function<void(const grpc::ServerContextBase&, const Caller&, const Request&, Response*,
                                         std::function<void(const grpc::Status&)> answer)>;

  // Serves a method for callers with any role. `handle` runs on the queue's thread.
  static void Serve(GrpcServer* server, Await await, Handle handle) {
    ServeLater(
        server, Role::kRead, std::move(await),
        [handle = std::move(handle)](const grpc::ServerContextBase&, const Caller&, const Request& request,
                                     Response* response, const auto& answer) { answer(handle(request, response)); });
  }
  // Serves a method that depends on the caller or does not answer at once.
  static void ServeLater(GrpcServer* server, Role needed, Await await, HandleLater handle) {
    new UnaryCall(server, needed, std::move(await), std::move(handle));
  }

 private:
  UnaryCall(GrpcServer* server, Role needed, Await await, HandleLater handle)
      : AsyncCall(server, needed), await_(std::move(await)), handle_(std::move(handle)) {
    await_(&context_, &request_, &responder_, accepted_tag());
  }

  void AwaitNext() override { ServeLater(server(), needed(), await_, handle_); }

  void OnChecked(const absl::StatusOr<Caller>& caller) override {
    Begin();
    if (!caller.ok()) return Answer(ToGrpcStatus(caller.status()));
    handle_(context_, *caller, request_, &response_, [this](const grpc::Status& answer) { Answer(answer); });
  }

  void Answer(const grpc::Status& status) {
    if (status.ok()) {
      responder_.Finish(response_, status, static_cast<Completion*>(&finished_tag_));
    } else {
      responder_.FinishWithError(status, static_cast<Completion*>(&finished_tag_));
    }
  }

  void OnFinished(bool) { OperationOver(); }

  const Await await_;
  const HandleLater handle_;
  Request request_;
  Response response_;
  Responder responder_{&context_};
  MemberCompletion<UnaryCall, &UnaryCall::OnFinished> finished_tag_{this};
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_GRPC_SERVER_H_

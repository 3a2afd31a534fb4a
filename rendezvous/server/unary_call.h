#ifndef DDPRUN_RENDEZVOUS_SERVER_UNARY_CALL_H_
#define DDPRUN_RENDEZVOUS_SERVER_UNARY_CALL_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <utility>

#include "rendezvous/server/call_counter.h"
#include "rendezvous/server/call_guard.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {

// Serves all calls of one unary method that the guard admits. Handlers are called on the completion queue's thread.
// Owns itself until the server shuts down.
template <typename Request, typename Response>
class UnaryCall {
 public:
  using Responder = grpc::ServerAsyncResponseWriter<Response>;
  // Requests the method's next call from gRPC.
  using Await = std::function<void(grpc::ServerContext*, Request*, Responder*, void* tag)>;
  using Handle = std::function<grpc::Status(const Request&, Response*)>;
  // Fills in the response and calls `answer` once, now or later, from any thread.
  using HandleLater = std::function<void(const grpc::ServerContextBase&, const Caller&, const Request&, Response*,
                                         std::function<void(const grpc::Status&)> answer)>;

  // For callers with any role.
  static void Serve(CallCounter* calls, CallGuard* guard, Await await, Handle handle) {
    ServeLater(
        calls, guard, Role::kRead, std::move(await),
        [handle = std::move(handle)](const grpc::ServerContextBase&, const Caller&, const Request& request,
                                     Response* response, const auto& answer) { answer(handle(request, response)); });
  }
  // For methods that depend on the caller or do not answer at once.
  static void ServeLater(CallCounter* calls, CallGuard* guard, Role needed, Await await, HandleLater handle) {
    (new UnaryCall(calls, guard, needed, std::move(await), std::move(handle)))->Start();
  }

 private:
  UnaryCall(CallCounter* calls, CallGuard* guard, Role needed, Await await, HandleLater handle)
      : calls_(calls),
        guard_(guard),
        token_(calls),
        needed_(needed),
        await_(std::move(await)),
        handle_(std::move(handle)) {}

  void Start() { await_(&context_, &request_, &responder_, static_cast<Completion*>(&accepted_tag_)); }

  void OnAccepted(bool ok) {
    if (!ok) {
      delete this;
      return;
    }
    ServeLater(calls_, guard_, needed_, await_, handle_);
    guard_->Check(context_, needed_, [this](const absl::StatusOr<Caller>& caller) {
      if (!caller.ok()) return Answer(ToGrpcStatus(caller.status()));
      handle_(context_, *caller, request_, &response_, [this](const grpc::Status& answer) { Answer(answer); });
    });
  }

  void Answer(const grpc::Status& status) {
    if (status.ok()) {
      responder_.Finish(response_, status, static_cast<Completion*>(&finished_tag_));
    } else {
      responder_.FinishWithError(status, static_cast<Completion*>(&finished_tag_));
    }
  }

  void OnFinished(bool) { delete this; }

  CallCounter* const calls_;
  CallGuard* const guard_;
  const CallCounter::Token token_;
  const Role needed_;
  const Await await_;
  const HandleLater handle_;
  grpc::ServerContext context_;
  Request request_;
  Response response_;
  Responder responder_{&context_};
  MemberCompletion<UnaryCall, &UnaryCall::OnAccepted> accepted_tag_{this};
  MemberCompletion<UnaryCall, &UnaryCall::OnFinished> finished_tag_{this};
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_UNARY_CALL_H_

#ifndef DDPRUN_RENDEZVOUS_WIRE_COMPLETION_H_
#define DDPRUN_RENDEZVOUS_WIRE_COMPLETION_H_

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/time/time.h"

// gRPC's completion queues, not its callbacks, run the streams: the threads behind the callbacks sleep 100 ms after
// each idle second (gRPC 1.51), which both wakes an idle process and delays messages that arrive meanwhile. A thread in
// RunCompletions sleeps until an operation completes.
namespace ddprun::rendezvous {

// Key in the initial metadata of every session, by which a launcher recognizes a rendezvous server.
inline constexpr char kServerMarker[] = "ddprun-rendezvous";

// Callback of one asynchronous operation, and its tag in gRPC. It must outlive the operation.
class Completion {
 public:
  virtual void Run(bool ok) = 0;

 protected:
  ~Completion() = default;
};

// A completion that calls a method of its owner.
template <typename Owner, void (Owner::*kMethod)(bool ok)>
class MemberCompletion final : public Completion {
 public:
  explicit MemberCompletion(Owner* owner) : owner_(owner) {}
  void Run(bool ok) override { (owner_->*kMethod)(ok); }

 private:
  Owner* const owner_;
};

// A moment on gRPC's steady clock, for alarms.
inline gpr_timespec AfterNow(absl::Duration wait) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(absl::ToInt64Microseconds(wait), GPR_TIMESPAN));
}

// gRPC passes a tag from the thread that started the operation to the thread of the queue. Its libraries are not
// instrumented, so these calls declare the synchronization to ThreadSanitizer (tests/tsan.supp): HandOver after the
// last write, TakeOver before the first read.
#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
inline void HandOver(Completion* tag) { __tsan_release(tag); }
inline void TakeOver(Completion* tag) { __tsan_acquire(tag); }
#else
inline void HandOver(Completion*) {}
inline void TakeOver(Completion*) {}
#endif

// Runs `call` on the queue's thread as soon as possible. REQUIRES: the queue is not shut down.
inline void PostTo(grpc::CompletionQueue* queue, std::function<void()> call) {
  class Posted final : public Completion {
   public:
    explicit Posted(std::function<void()> call) : call_(std::move(call)) {}
    void Set(grpc::CompletionQueue* queue) {
      HandOver(this);
      alarm_.Set(queue, AfterNow(absl::ZeroDuration()), static_cast<Completion*>(this));
    }
    void Run(bool) override {
      const std::unique_ptr<Posted> self(this);
      call_();
    }

   private:
    const std::function<void()> call_;
    grpc::Alarm alarm_;
  };
  (new Posted(std::move(call)))->Set(queue);
}

// Runs completions until the queue is shut down and empty.
inline void RunCompletions(grpc::CompletionQueue* queue) {
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
    TakeOver(static_cast<Completion*>(tag));
    static_cast<Completion*>(tag)->Run(ok);
  }
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_COMPLETION_H_

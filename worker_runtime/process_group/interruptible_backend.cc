#include "worker_runtime/process_group/interruptible_backend.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/steady_time.h"

namespace ddprun {

using c10::ivalue::Future;

void OperationWatch::Interrupt(SteadyTime now) {
  if (!interrupted_.has_value()) interrupted_ = now;
}

bool OperationWatch::Step(const Sight& sight, SteadyTime now) {
  if (interrupted_.has_value()) {
    // While a connection is open, bytes that have arrived may still be written to a tensor.
    const absl::Duration grace = sight.open == 0 ? kGrace : kSilence;
    return now - *interrupted_ >= grace;
  }
  if (sight.lost == 0) {
    silent_since_.reset();
    return false;
  }
  if (sight.one_failed) return true;
  if (!silent_since_.has_value() || sight.bytes != bytes_) silent_since_ = now;
  bytes_ = sight.bytes;
  return now - *silent_since_ >= kSilence;
}

SteadyTime OperationWatch::NextLook(SteadyTime now) const {
  if (!interrupted_.has_value()) return now + kBetweenLooks;
  return std::max(*interrupted_ + kGrace, now + kGrace / 5);
}

// An operation as seen by its user; `inner` is Gloo's.
class InterruptibleBackend::Operation : public c10d::Work {
 public:
  Operation(Started inner, std::shared_ptr<InFlight> in_flight)
      : c10d::Work(-1, inner->retrieveOpType()), inner_(std::move(inner)), in_flight_(std::move(in_flight)) {}

  // Ends the operation for its waiters, if it has not ended. May be called from any thread.
  virtual void Fail(const std::exception_ptr& why) = 0;

  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }

  uint64_t number = 0;  // its key in InFlight, whose lock guards it

 protected:
  const Started inner_;
  const std::shared_ptr<InFlight> in_flight_;
};

// The operations in flight, and the thread that watches them. Shared with the operations, whose inner operations may
// outlive the backend.
class InterruptibleBackend::InFlight : public std::enable_shared_from_this<InFlight> {
 public:
  explicit InFlight(Look look) : look_(std::move(look)) {}

  void Interrupt(const std::string& why) {
    MutexLock lock(&mutex_);
    if (why_ == nullptr) why_ = Error(absl::StrCat("Connection closed: ", why));
    watch_.Interrupt(SteadyNow());
    changed_.NotifyAll();
  }

  // Throws the reason why no operation can begin any more, if there is one.
  void Check() {
    MutexLock lock(&mutex_);
    if (why_ != nullptr) std::rethrow_exception(why_);
  }

  // `has_inner_thread`: InnerEnded will be called, by one of Gloo's threads or ours.
  void Begin(const c10::intrusive_ptr<Operation>& operation, bool has_inner_thread) {
    std::exception_ptr ended;
    {
      MutexLock lock(&mutex_);
      if (has_inner_thread) ++running_;
      if (!ended_) {
        operation->number = ++begun_;
        operations_.emplace(operation->number, operation);
        if (!watcher_.joinable()) watcher_ = std::thread([self = shared_from_this()] { self->Watch(); });
        if (asleep_) changed_.NotifyAll();
        return;
      }
      ended = why_;
    }
    operation->Fail(ended);
  }

  // Removes an operation that has ended for its waiters.
  void End(const Operation& operation) {
    c10::intrusive_ptr<Operation> last;  // destroyed after the lock is released
    MutexLock lock(&mutex_);
    const auto found = operations_.find(operation.number);
    if (found == operations_.end()) return;
    last = std::move(found->second);
    operations_.erase(found);
  }

  void InnerEnded(bool failed) {
    MutexLock lock(&mutex_);
    --running_;
    one_failed_ |= failed;
    if (why_ != nullptr) changed_.NotifyAll();
  }

  // Stops the thread; after an interruption, first waits until all operations have ended. Returns true if an inner
  // operation is still running and may do so until its timeout.
  bool Leave() {
    std::thread watcher;
    {
      MutexLock lock(&mutex_);
      while (why_ != nullptr && running_ > 0 && !ended_) changed_.Wait(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
      watcher = std::move(watcher_);
    }
    // A callback of an operation that the watcher ended may hold the last reference to the backend.
    if (watcher.get_id() == std::this_thread::get_id()) {
      watcher.detach();
    } else if (watcher.joinable()) {
      watcher.join();
    }
    MutexLock lock(&mutex_);
    return why_ != nullptr && running_ > 0;
  }

 private:
  // An exception of the type and wording of Gloo's errors.
  static std::exception_ptr Error(const std::string& text) {
    return std::make_exception_ptr(std::runtime_error(absl::StrCat("[gloo/transport/tcp] ", text)));
  }

  void Watch() {
    mutex_.Lock();
    uint64_t begun_before = 0;
    while (!stopping_) {
      if (operations_.empty()) {
        watch_.Rest();
        asleep_ = true;
        changed_.Wait(&mutex_);
        asleep_ = false;
        begun_before = begun_;
        continue;
      }
      changed_.WaitUntil(&mutex_, watch_.NextLook(SteadyNow()));
      const bool late = !operations_.empty() && operations_.begin()->first <= begun_before;
      begun_before = begun_;
      if (late || (why_ != nullptr && !operations_.empty())) CheckConnections();
    }
    mutex_.Unlock();
  }

  void CheckConnections() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    mutex_.Unlock();
    const Connections seen = look_();
    mutex_.Lock();
    const OperationWatch::Sight sight = {
        .lost = static_cast<int>(seen.lost.size()), .open = seen.open, .bytes = seen.bytes, .one_failed = one_failed_};
    if (ended_ || !watch_.Step(sight, SteadyNow())) return;
    if (why_ == nullptr) {
      why_ = Error(absl::StrCat("Connection closed by peer ", seen.lost.front(), " in the middle of a message"));
    }
    ended_ = true;
    changed_.NotifyAll();
    const std::exception_ptr why = why_;
    const auto operations = operations_;
    mutex_.Unlock();
    for (const auto& entry : operations) entry.second->Fail(why);
    mutex_.Lock();
  }

  const Look look_;
  Mutex mutex_;
  CondVar changed_;
  std::thread watcher_ ABSL_GUARDED_BY(mutex_);
  OperationWatch watch_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, c10::intrusive_ptr<Operation>> operations_ ABSL_GUARDED_BY(mutex_);  // ordered by age
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;         // inner operations
  std::exception_ptr why_ ABSL_GUARDED_BY(mutex_);  // no operation can begin
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;      // operations in flight have been ended
  bool one_failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool asleep_ ABSL_GUARDED_BY(mutex_) = false;  // the watcher has nothing to watch
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

// An operation that completes on a thread of Gloo's or ours.
class InterruptibleBackend::Collective : public Operation {
 public:
  Collective(Started inner, std::shared_ptr<InFlight> in_flight, c10::intrusive_ptr<Future> future)
      : Operation(std::move(inner), std::move(in_flight)), future_(std::move(future)) {}

  c10::intrusive_ptr<Future> getFuture() override { return future_; }

  std::vector<at::Tensor> result() override {
    TORCH_CHECK(isCompleted(),
                "Work needs to be completed before calling result(). Should call wait() before result().");
    return future_->value().toTensorVector();
  }

  // Orders the current stream after copies back to the GPU.
  void synchronize() override { inner_->synchronize(); }

  void Fail(const std::exception_ptr& why) override {
    if (ended_.exchange(true)) return;
    in_flight_->End(*this);
    future_->setError(why);
    finish(why);
  }

  void InnerSucceeded(c10::IValue value) {
    in_flight_->InnerEnded(/*failed=*/false);
    if (ended_.exchange(true)) return;
    in_flight_->End(*this);
    future_->markCompleted(std::move(value));
    finish();
  }

  void InnerFailed(const std::exception_ptr& why) {
    in_flight_->InnerEnded(/*failed=*/true);
    Fail(why);
  }

 private:
  const c10::intrusive_ptr<Future> future_;
  std::atomic<bool> ended_ = false;
};

// A send or a receive, which completes inside wait().
class InterruptibleBackend::Message : public Operation {
 public:
  using Operation::Operation;

  int sourceRank() const override { return inner_->sourceRank(); }
  void abort() override { inner_->abort(); }

  bool wait(std::chrono::milliseconds timeout) override {
    in_flight_->Check();
    in_flight_->Begin(c10::intrusive_ptr<Message>::unsafe_reclaim_from_nonowning(this), /*has_inner_thread=*/false);
    bool done = false;
    std::exception_ptr error;
    try {
      done = inner_->wait(timeout);
    } catch (...) {
      error = std::current_exception();
    }
    in_flight_->End(*this);
    {
      const std::lock_guard<std::mutex> lock(failure_mutex_);
      if (failure_ != nullptr) error = failure_;
    }
    finishAndThrow(error);
    return done;
  }

  void Fail(const std::exception_ptr& why) override {
    {
      const std::lock_guard<std::mutex> lock(failure_mutex_);
      failure_ = why;
    }
    inner_->abort();
  }

 private:
  std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

InterruptibleBackend::InterruptibleBackend(c10::intrusive_ptr<c10d::Backend> gloo, Look look)
    : c10d::Backend(gloo->getRank(), gloo->getSize()),
      gloo_(std::move(gloo)),
      in_flight_(std::make_shared<InFlight>(std::move(look))) {}

InterruptibleBackend::~InterruptibleBackend() {
  if (!in_flight_->Leave()) return;
  // Gloo's destructor waits for the operations.
  std::thread([gloo = std::move(gloo_)]() mutable { gloo.reset(); }).detach();
}

void InterruptibleBackend::Interrupt(const std::string& why) { in_flight_->Interrupt(why); }

InterruptibleBackend::Started InterruptibleBackend::StartAlone(Start start) {
  static Mutex* const mutex = new Mutex;
  MutexLock lock(mutex);
  return start();
}

InterruptibleBackend::Started InterruptibleBackend::StartCollective(Start start) {
  in_flight_->Check();
  const Started inner = StartAlone(start);
  const bool has_future = dynamic_cast<c10d::ProcessGroupGloo::AsyncWork*>(inner.get()) != nullptr;
  const c10::intrusive_ptr<Future> ended = has_future ? inner->getFuture() : nullptr;
  auto operation = c10::make_intrusive<Collective>(
      inner, in_flight_,
      has_future ? ended->createInstance(ended->elementType())
                 : c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get())));
  in_flight_->Begin(operation, /*has_inner_thread=*/true);
  if (has_future) {
    ended->addCallback([operation](Future& future) {
      if (future.hasError()) {
        operation->InnerFailed(future.exception_ptr());
      } else {
        operation->InnerSucceeded(future.value());
      }
    });
    return operation;
  }
  // Gloo's reduce_scatter_tensor is composed of other operations, for which its wait() waits.
  std::thread([operation, inner] {
    try {
      inner->wait();
      operation->InnerSucceeded(std::vector<at::Tensor>());
    } catch (...) {
      operation->InnerFailed(std::current_exception());
    }
  }).detach();
  return operation;
}

InterruptibleBackend::Started InterruptibleBackend::StartMessage(Start start) {
  in_flight_->Check();
  return c10::make_intrusive<Message>(start(), in_flight_);
}

void InterruptibleBackend::setGroupUid(const std::string& uid) {
  c10d::Backend::setGroupUid(uid);
  gloo_->setGroupDesc(getGroupDesc());  // not virtual
  gloo_->setGroupUid(uid);
}

void InterruptibleBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  in_flight_->Check();
  gloo_->monitoredBarrier(options, wait_all_ranks);
}

}  // namespace ddprun

#include "rendezvous/client/local_client.h"

#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "rendezvous/client/reconnector.h"
#include "rendezvous/core/validate.h"
#include "rendezvous/server/driver.h"

namespace ddprun::rendezvous {
namespace {

// Tasks of the client's thread, in order.
struct ResetStream {};
struct CloseStream {};
struct StopThread {};
using Task = std::variant<LauncherMessage, ServerMessage, absl::Status, ResetStream, CloseStream, StopThread>;

class TaskQueue {
 public:
  // `stream` is the session that the task came from; 0: the client's user.
  struct Entry {
    uint64_t stream = 0;
    Task task;
  };

  void Push(uint64_t stream, Task task) {
    {
      MutexLock lock(&mutex_);
      entries_.push_back(Entry{stream, std::move(task)});
    }
    not_empty_.NotifyAll();
  }

  Entry Pop() {
    MutexLock lock(&mutex_);
    while (entries_.empty()) not_empty_.Wait(&mutex_);
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    return entry;
  }

 private:
  Mutex mutex_;
  CondVar not_empty_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

// The driver's side of a stream. Forwards everything to the client's thread.
class LocalSession final : public Session {
 public:
  LocalSession(uint64_t stream, std::shared_ptr<TaskQueue> queue) : stream_(stream), queue_(std::move(queue)) {}
  void Send(const ServerMessage& message) override { queue_->Push(stream_, message); }
  void End(const absl::Status& status) override { queue_->Push(stream_, status); }

 private:
  const uint64_t stream_;
  const std::shared_ptr<TaskQueue> queue_;  // shared, because the driver may keep a session for a while
};

class LocalClient final : public Client {
 public:
  LocalClient(Driver* driver, Handler handler, std::string user)
      : driver_(driver), handler_(std::move(handler)), user_(std::move(user)), queue_(std::make_shared<TaskQueue>()) {
    thread_ = std::thread([this] { Run(); });
  }

  ~LocalClient() override {
    queue_->Push(0, StopThread{});
    thread_.join();
  }

  void Send(LauncherMessage message) override {
    queue_->Push(0, Task(std::in_place_type<LauncherMessage>, std::move(message)));
  }
  void Reset() override { queue_->Push(0, ResetStream{}); }
  void Close() override { queue_->Push(0, CloseStream{}); }

 private:
  // The functions below run on the client's thread.

  void Run() {
    Open();
    while (true) {
      TaskQueue::Entry entry = queue_->Pop();
      if (entry.stream != 0 && entry.stream != stream_) continue;  // from a session that has ended
      if (std::holds_alternative<StopThread>(entry.task)) break;
      if (session_ != nullptr) std::visit([this](auto&& task) { Do(std::move(task)); }, std::move(entry.task));
    }
    EndSession();
  }

  void Open() {
    session_ = std::make_shared<LocalSession>(++stream_, queue_);
    join_first_.OnNewStream();
    handler_(Connected{});
  }

  void EndSession() {
    if (session_ != nullptr) driver_->OnClosed(session_);
    session_ = nullptr;
  }

  void Do(LauncherMessage message) {
    if (!join_first_.Admits(message)) return;
    FitTexts(&message);
    if (absl::Status status = Validate(&message); !status.ok()) return Do(std::move(status));
    if (Join* join = std::get_if<Join>(&message)) {
      join->mutable_origin()->set_in_process(true);
      join->mutable_origin()->set_user(user_);
    }
    driver_->OnMessage(session_, message);
  }
  void Do(ServerMessage message) { handler_(std::move(message)); }
  void Do(absl::Status end) {
    EndSession();
    Disconnected event = DescribeEnd("this host", StreamProgress::kOpen, end);
    const bool permanent = event.permanent || end.ok();
    handler_(std::move(event));
    if (!permanent) Open();
  }
  void Do(ResetStream) {
    EndSession();
    handler_(DescribeEnd("this host", StreamProgress::kAbandoned, absl::OkStatus()));
    Open();
  }
  void Do(CloseStream) { EndSession(); }
  void Do(StopThread) {}

  Driver* const driver_;
  const Handler handler_;
  const std::string user_;
  const std::shared_ptr<TaskQueue> queue_;
  uint64_t stream_ = 0;  // counts sessions
  JoinFirst join_first_;
  std::shared_ptr<Session> session_;  // null once closed
  std::thread thread_;                // last: started when all other members exist
};

}  // namespace

std::unique_ptr<Client> NewLocalClient(Driver* driver, Client::Handler handler, std::string user) {
  return std::make_unique<LocalClient>(driver, std::move(handler), std::move(user));
}

}  // namespace ddprun::rendezvous

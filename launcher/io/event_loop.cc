#include "launcher/io/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {
namespace {

constexpr uint64_t kWakeId = 0;
constexpr uint64_t kTimerId = 1;
constexpr uint64_t kFirstId = 2;
constexpr int kEventsPerTurn = 256;

int Control(int epoll, int operation, int fd, uint32_t events, uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return epoll_ctl(epoll, operation, fd, &event);
}

void DrainCounter(int fd) {
  uint64_t count;
  while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoStatus(errno, "epoll_create1");
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer.valid()) return ErrnoStatus(errno, "timerfd_create");
  if (Control(epoll.get(), EPOLL_CTL_ADD, wake.get(), EPOLLIN, kWakeId) != 0 ||
      Control(epoll.get(), EPOLL_CTL_ADD, timer.get(), EPOLLIN, kTimerId) != 0) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake), std::move(timer)));
}

EventLoop::EventLoop(UniqueFd epoll, UniqueFd wake, UniqueFd timer)
    : epoll_(std::move(epoll)), wake_(std::move(wake)), timer_(std::move(timer)), next_id_(kFirstId) {}

EventLoop::~EventLoop() = default;

absl::Status EventLoop::AddFd(int fd, uint32_t events, FdCallback callback) {
  if (id_of_fd_.count(fd) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("file descriptor ", fd, " is already watched"));
  }
  const uint64_t id = next_id_++;
  if (Control(epoll_.get(), EPOLL_CTL_ADD, fd, events, id) != 0) {
    return ErrnoStatus(errno, absl::StrCat("watching file descriptor ", fd));
  }
  watches_[id] = std::make_shared<Watch>(Watch{fd, std::move(callback)});
  id_of_fd_[fd] = id;
  return absl::OkStatus();
}

absl::Status EventLoop::ModifyFd(int fd, uint32_t events) {
  const auto found = id_of_fd_.find(fd);
  if (found == id_of_fd_.end()) {
    return absl::NotFoundError(absl::StrCat("file descriptor ", fd, " is not watched"));
  }
  if (Control(epoll_.get(), EPOLL_CTL_MOD, fd, events, found->second) != 0) {
    return ErrnoStatus(errno, absl::StrCat("watching file descriptor ", fd));
  }
  return absl::OkStatus();
}

void EventLoop::RemoveFd(int fd) {
  const auto found = id_of_fd_.find(fd);
  if (found == id_of_fd_.end()) return;
  // Fails only if the descriptor was closed too early; the kernel has already removed it then.
  Control(epoll_.get(), EPOLL_CTL_DEL, fd, 0, 0);
  watches_.erase(found->second);
  id_of_fd_.erase(found);
}

std::shared_ptr<const EventLoop::Timer> EventLoop::AddTimer(std::function<SteadyTime()> next_deadline,
                                                            std::function<void(SteadyTime)> on_deadline) {
  auto timer = std::make_shared<const Timer>(Timer{std::move(next_deadline), std::move(on_deadline)});
  timers_.push_back(timer);
  return timer;
}

void EventLoop::Post(std::function<void()> task) {
  bool first;
  {
    MutexLock lock(&mutex_);
    first = posted_.empty();
    posted_.push_back(std::move(task));
  }
  if (first) Wake();
}

void EventLoop::Quit() {
  quit_.store(true);
  Wake();
}

void EventLoop::Wake() {
  const uint64_t one = 1;
  while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void EventLoop::Run() {
  epoll_event events[kEventsPerTurn];
  while (!quit_.load()) {
    RunPosted();
    RunDueTimers();
    if (quit_.load()) break;
    ArmTimer();
    const int count = epoll_wait(epoll_.get(), events, kEventsPerTurn, -1);
    ++wakeups_;
    for (int i = 0; i < count && !quit_.load(); ++i) Dispatch(events[i].data.u64, events[i].events);
  }
  quit_.store(false);
}

void EventLoop::RunPosted() {
  std::vector<std::function<void()>> tasks;
  {
    MutexLock lock(&mutex_);
    tasks.swap(posted_);
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (quit_.load()) {
      // Tasks posted before Quit but not run yet stay first in the queue for the next Run.
      MutexLock lock(&mutex_);
      posted_.insert(posted_.begin(), std::make_move_iterator(tasks.begin() + i), std::make_move_iterator(tasks.end()));
      break;
    }
    tasks[i]();
  }
}

void EventLoop::RunDueTimers() {
  // A callback may add timers and end others.
  for (size_t i = 0; i < timers_.size() && !quit_.load(); ++i) {
    const std::shared_ptr<const Timer> timer = timers_[i].lock();
    if (timer == nullptr) continue;
    const SteadyTime now = SteadyNow();
    if (timer->next_deadline() <= now) timer->on_deadline(now);
  }
}

void EventLoop::ArmTimer() {
  std::erase_if(timers_, [](const auto& timer) { return timer.expired(); });
  SteadyTime deadline = SteadyTime::InfiniteFuture();
  for (const auto& timer : timers_) deadline = std::min(deadline, timer.lock()->next_deadline());
  if (deadline == armed_) return;
  itimerspec spec{};  // all zero disarms
  if (!(deadline == SteadyTime::InfiniteFuture())) {
    spec.it_value = absl::ToTimespec(deadline.since_start());
    // Zero would disarm the timer and a negative value is invalid; both mean "at once".
    if (deadline.since_start() <= absl::ZeroDuration()) spec.it_value = {0, 1};
  }
  if (timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr) == 0) armed_ = deadline;
}

void EventLoop::Dispatch(uint64_t id, uint32_t events) {
  if (id == kWakeId) {
    DrainCounter(wake_.get());
    return;
  }
  if (id == kTimerId) {
    DrainCounter(timer_.get());
    armed_ = SteadyTime::InfiniteFuture();  // it has fired; an equal deadline must arm it again
    return;
  }
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  // The callback may remove itself.
  const std::shared_ptr<Watch> watch = found->second;
  watch->callback(events);
}

}  // namespace ddprun::launcher

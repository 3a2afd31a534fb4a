#ifndef DDPRUN_LAUNCHER_HANG_WORKER_PROBE_H_
#define DDPRUN_LAUNCHER_HANG_WORKER_PROBE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "proto/hang.pb.h"

namespace ddprun::launcher {

// The launcher's end of a connection on which a worker, or a child of it, answers questions (docs/worker_protocol.md
// 7): LinkServer hands it over. Questions are sent one at a time, in order; none blocks. A process that is stopped does
// not answer: its next question is sent when it has answered the one before. Belongs to the loop's thread, and must be
// destroyed before the loop.
class WorkerProbe {
 public:
  enum class Question : char { kCounters = 'c', kCollectives = 'e', kStacks = 't' };
  // `answer` is unset if the process did not answer in time or the connection has ended.
  using OnAnswer = std::function<void(std::optional<std::string> answer)>;

  // `on_closed` is called from the loop, once, after the connection has ended. It may destroy the probe.
  WorkerProbe(EventLoop* loop, pid_t process, UniqueFd fd, std::function<void()> on_closed);
  ~WorkerProbe();
  WorkerProbe(const WorkerProbe&) = delete;
  WorkerProbe& operator=(const WorkerProbe&) = delete;

  pid_t process() const { return process_; }

  // `on_answer` is called once, from the loop, within Patience(question); never if the probe is destroyed before. It
  // may destroy the probe.
  void Ask(Question question, OnAnswer on_answer);

  static absl::Duration Patience(Question question) { return absl::Seconds(question == Question::kStacks ? 3 : 2); }
  // A longer answer ends the connection.
  static constexpr size_t kMaxAnswer = 16 << 20;

 private:
  struct Asked {
    Question question;
    OnAnswer on_answer;  // null: the asker was told that there is no answer
    SteadyTime deadline;
  };

  void SendNext();
  void OnReadable();
  // Adds received bytes to the answer. False: they answer no question, or are too many.
  bool Receive(absl::string_view bytes);
  void OnDeadline(SteadyTime now);
  void Close();

  EventLoop* const loop_;
  const pid_t process_;
  UniqueFd fd_;  // not valid: the connection has ended
  const std::function<void()> on_closed_;
  std::deque<Asked> asked_;
  bool sent_ = false;     // the first of asked_ was sent
  std::string received_;  // a part of its answer, with its length in front
  std::shared_ptr<const EventLoop::Timer> timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once this object is gone
};

// ---- PURE: what answers mean. Any bytes are accepted. ----

// A process's counters of collectives.
struct Counters {
  std::string text;     // changes when the process has entered, started or completed one; empty: it has none, or its
                        // recorders are switched off
  bool waits = false;   // it has entered one that has not completed
  int64_t entered = 0;  // collectives of all groups
};
Counters ParseCounters(absl::string_view answer);

// Returns the newest collectives of each group and NCCL's pending sends and receives, at most kMostCollectives of each.
// A group that was made again under the name of another is the newer one. The default group is "default_pg", others
// have PyTorch's name. If a group uses Gloo beside NCCL, Gloo's collectives, which have numbers of their own, are those
// of a group with " (gloo)" behind its name. Ages are those at `now`.
std::vector<hang::v1::Group> ParseCollectives(absl::string_view answer, absl::Time now);
inline constexpr int kMostCollectives = 200;

// Adds the Python stacks of the main thread and of the others to `process`. If the list of threads was cut, the main
// one is unknown.
void ParsePythonStacks(absl::string_view answer, hang::v1::Process* process);

// Adds the main thread's Python and native stack, as StackProbe reports them, to `process`.
void ParseMainStack(absl::string_view text, hang::v1::Process* process);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HANG_WORKER_PROBE_H_

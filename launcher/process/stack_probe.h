#ifndef DDPRUN_LAUNCHER_PROCESS_STACK_PROBE_H_
#define DDPRUN_LAUNCHER_PROCESS_STACK_PROBE_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/run_command.h"

namespace ddprun::launcher {

// State of the main thread from /proc, such as "main thread: T (stopped); wchan do_signal_stop; system call 230"; empty
// if there is no such process.
std::string DescribeMainThread(pid_t pid);

// Collects the stacks of a running process. If the process has the handler of worker_contract/crash_report, it is asked
// first and reports the stacks of its main thread, Python's and the native one. A process that has no handler, is
// stopped or does not answer is inspected from outside, with the first of py-spy, eu-stack and gdb that is installed
// and answers. Never blocks, finishes within a few seconds, and neither changes nor ends the process. Belongs to the
// loop's thread, which must be the main thread (see CreateChild); must be destroyed before the loop.
class StackProbe {
 public:
  // `on_done` is called once, from the loop, with the state of the main thread and the stacks that are known: lines
  // with line ends, at most kMaxBytes. It may destroy the probe.
  //
  // kProcessOnly: cheap, and done within two seconds; the process is not inspected from outside.
  enum class Sources { kProcessOnly, kAlsoTools };
  StackProbe(EventLoop* loop, pid_t pid, std::function<void(const std::string& text)> on_done,
             Sources sources = Sources::kAlsoTools);
  ~StackProbe();
  StackProbe(const StackProbe&) = delete;
  StackProbe& operator=(const StackProbe&) = delete;

  static constexpr size_t kMaxBytes = 16 * 1024;

 private:
  // Signals the process to report its stacks. False if it can't be asked.
  bool RequestStacks();
  void OnReadable();
  void OnTimer();
  // Runs the next installed tool, or finishes.
  void RunNextTool();
  void SetTimer();
  void StopReading();
  void Finish();

  EventLoop* const loop_;
  const pid_t pid_;
  const std::function<void(const std::string&)> on_done_;
  const Sources sources_;
  const std::string state_;
  UniqueFd timer_;
  UniqueFd reading_;
  UniqueFd writing_;  // our copy, until the process has opened the pipe
  std::string text_;
  std::vector<std::vector<std::string>> tools_;  // command lines not tried yet, the next one last
  std::unique_ptr<Command> tool_;
  bool done_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once this object is gone
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_STACK_PROBE_H_

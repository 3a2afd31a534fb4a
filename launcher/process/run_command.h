#ifndef DDPRUN_LAUNCHER_PROCESS_RUN_COMMAND_H_
#define DDPRUN_LAUNCHER_PROCESS_RUN_COMMAND_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/spawn_process.h"

namespace ddprun::launcher {

// Runs a program in the background and collects its output, up to 64 KiB. Its stderr is discarded. The program is
// killed if its output is longer or does not end within `limit`, or when this object is destroyed. Belongs to the
// loop's thread, which must be the main thread (see CreateChild). ReapDeadOrphans reaps the program.
class Command {
 public:
  // `on_answer` is called once with the whole output; never if the output is too long or does not end in time. It must
  // not destroy the command. A program that can't be executed has no output. Errors: those of CreateChild.
  static absl::StatusOr<std::unique_ptr<Command>> Run(EventLoop* loop, const SpawnRequest& program,
                                                      absl::Duration limit,
                                                      std::function<void(const std::string&)> on_answer);
  ~Command() { End(); }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

 private:
  Command(EventLoop* loop, std::function<void(const std::string&)> on_answer)
      : loop_(loop), on_answer_(std::move(on_answer)) {}
  void OnReadable();
  void End();

  EventLoop* const loop_;
  const std::function<void(const std::string&)> on_answer_;
  UniqueFd process_;  // pidfd; not valid once the command has ended
  UniqueFd output_;
  UniqueFd timer_;
  std::string text_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PROCESS_RUN_COMMAND_H_

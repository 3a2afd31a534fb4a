#ifndef DDPRUN_LAUNCHER_JOB_END_H_
#define DDPRUN_LAUNCHER_JOB_END_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/config/options.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/spawn_process.h"
#include "launcher/report/mask_secrets.h"
#include "proto/hosts.pb.h"
#include "rendezvous/core/messages.h"

// The end of a job for programs: --on-end and --result. One launcher, the one that AgentMachine names in effect::Exit
// (protocol 5), has the summary as JSON (JobEndJson), writes it to a file, and passes it to the user's command on
// standard input. Neither changes the launcher's exit code.
namespace ddprun::launcher {

// Facts of a launcher about the end of its job.
struct JobEnd {
  std::string job_id;
  rendezvous::JobSettings settings;
  hosts::v1::JobFailure summary;  // also of a job that has succeeded
  std::optional<rendezvous::Assignment> last_round;
  std::optional<rendezvous::Hang> hang;  // reported and not over
  absl::Time begin;                      // start of this launcher
  absl::Time end;
};

// PURE: one line of JSON (docs/job_end.md). It has the names of `ddprunctl show --output=json`, as far as a launcher
// knows the values. `mask` removes secrets from its texts.
std::string JobEndJson(const JobEnd& end, const SecretMask& mask);

// Checks at the start that the result can be written: FILE is a regular file or does not exist, and its folder is
// writable. InvalidArgument: one line, which names the flag.
absl::Status CheckResultFile(const std::string& path);

// The command of --on-end: `/bin/sh -c COMMAND` with the launcher's environment, standard output and standard error.
// Its input is a file in memory, so no process gets SIGPIPE if the command does not read it. It leads a process group
// of its own; the group is killed after `limit`, on Kill, and by the destructor. Belongs to the loop's thread, which
// must be the main thread (see CreateChild).
class EndCommand {
 public:
  // `on_end` is called once, on the loop; then result() is final. It must not destroy the command. Errors: those of
  // CreateChild.
  static absl::StatusOr<std::unique_ptr<EndCommand>> Start(EventLoop* loop, const std::string& command,
                                                           absl::string_view input, std::function<void()> on_end,
                                                           absl::Duration limit = kEndCommandLimit);
  ~EndCommand() { End(); }
  EndCommand(const EndCommand&) = delete;
  EndCommand& operator=(const EndCommand&) = delete;

  // `reason`: "received SIGINT".
  void Kill(absl::string_view reason);

  // OK if the command exited with 0; else one line: what it ended with, and why it was killed.
  const absl::Status& result() const { return result_; }

 private:
  EndCommand(EventLoop* loop, Child child, std::function<void()> on_end)
      : loop_(loop), child_(std::move(child)), on_end_(std::move(on_end)) {}
  void OnExited();
  void KillGroup();
  // Kills what is left and reaps the process.
  int End();

  EventLoop* const loop_;
  Child child_;  // the pidfd is not valid once the command was reaped
  const std::function<void()> on_end_;
  std::shared_ptr<const EventLoop::Timer> timer_;
  SteadyTime kill_at_;
  std::string killed_because_;  // empty: it was not killed
  absl::Status result_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_JOB_END_H_

#ifndef DDPRUN_LAUNCHER_PREFLIGHT_HOST_FACTS_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_HOST_FACTS_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/io/event_loop.h"
#include "launcher/process/run_command.h"
#include "proto/hosts.pb.h"

// Checks of this host before a job's launcher starts on it.
namespace ddprun::launcher {

// Enters the working folder and sets the environment that `prepare` names, for this process. InvalidArgument: a line
// that says what is missing on this host: the folder, the script, the interpreter.
absl::Status PrepareHost(const hosts::v1::HostCommand::Prepare& prepare);

// Collects the facts of this host, which CompareNodes compares, and passes them to `done` on the loop's thread; or an
// error, if the interpreter does not run. Versions of packages are read from their metadata; nothing is imported.
// Returns the running interpreter, if any, which is killed when it is destroyed. REQUIRES: PrepareHost has succeeded.
absl::StatusOr<std::unique_ptr<Command>> CollectFacts(
    EventLoop* loop, const hosts::v1::HostCommand::Prepare& prepare,
    std::function<void(absl::StatusOr<hosts::v1::HostReport::Facts>)> done);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_HOST_FACTS_H_

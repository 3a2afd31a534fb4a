#ifndef DDPRUN_LAUNCHER_CONFIG_SIGNAL_LIST_H_
#define DDPRUN_LAUNCHER_CONFIG_SIGNAL_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun::launcher {

// Parses the names of signals on which the launcher stops the job: "SIGTERM,SIGUSR1". Duplicates are ignored.
// InvalidArgument (one line, without the flag's name): an unknown name, or a signal that can't be handled (SIGKILL,
// SIGSTOP), means a crash of the launcher itself, or is used by the launcher internally (SIGCHLD).
absl::StatusOr<std::vector<int>> ParseSignals(absl::string_view text);

// The inverse of ParseSignals: names joined by commas.
std::string SignalNames(absl::Span<const int> signals);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_SIGNAL_LIST_H_

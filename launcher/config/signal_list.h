#ifndef DDPRUN_LAUNCHER_CONFIG_SIGNAL_LIST_H_
#define DDPRUN_LAUNCHER_CONFIG_SIGNAL_LIST_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun::launcher {

// The number of "SIGTERM" or "TERM".
std::optional<int> SignalNumber(absl::string_view name);

// Reads the names of signals that the launcher is to answer by stopping the job: "SIGTERM,SIGUSR1". A name given
// twice counts once. InvalidArgument (one line, without the flag's name): an unknown name; a signal that can't be
// handled (SIGKILL, SIGSTOP), means a crash of the launcher itself, or is the launcher's own tool (SIGCHLD).
absl::StatusOr<std::vector<int>> ParseSignals(absl::string_view text);

// The inverse: names joined by commas.
std::string SignalNames(absl::Span<const int> signals);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_SIGNAL_LIST_H_

#ifndef DDPRUN_LAUNCHER_CONFIG_HOST_SPEC_H_
#define DDPRUN_LAUNCHER_CONFIG_HOST_SPEC_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The value of --hosts.
namespace ddprun::launcher {

// A host on which ssh starts a launcher.
struct HostSpec {
  std::string name;          // ssh's argument: a name, an alias of ~/.ssh/config, an address, or USER@ one of them
  std::optional<int> slots;  // number of workers; absent: that of --nproc-per-node

  friend bool operator==(const HostSpec&, const HostSpec&) = default;
};

// Parses "a,b:8,[fd00::1]:2,user@c". InvalidArgument: one line, without the flag's name.
absl::StatusOr<std::vector<HostSpec>> ParseHosts(absl::string_view text);

// Parses a hostfile of Open MPI or DeepSpeed ("a slots=8", further words are ignored), of MPICH ("a:8"), or a list of
// names (PBS's), in which a host that is repeated has a worker for each of its lines. "#" starts a comment.
// InvalidArgument: one line with the number of the wrong line.
absl::StatusOr<std::vector<HostSpec>> ParseHostFile(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_HOST_SPEC_H_

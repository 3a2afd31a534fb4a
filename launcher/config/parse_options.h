#ifndef DDPRUN_LAUNCHER_CONFIG_PARSE_OPTIONS_H_
#define DDPRUN_LAUNCHER_CONFIG_PARSE_OPTIONS_H_

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"
#include "launcher/config/options.h"

namespace ddprun::launcher {

// True: processes in sessions of their own outlive the workers that started them.
inline constexpr char kKeepOrphansVariable[] = "DDPRUN_KEEP_ORPHANS";
inline constexpr char kUninterruptibleVariable[] = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";

// Output of --help or --version, which start nothing. Ends with a newline.
struct InfoText {
  std::string text;
};

struct ParsedOptions {
  Options options;
  Origins origins;
  // Flags given on the command line or by a PET_ variable, with their values, in the order of the flag table.
  std::vector<std::pair<std::string, std::string>> given;
};

using ParseResult = std::variant<ParsedOptions, InfoText>;

// Parses a command line, without the program's name, and the environment. The value of a flag comes from the command
// line, else from PET_<FLAG> (an empty variable counts as unset), else it is the default; --shutdown-timeout also reads
// TORCH_ELASTIC_SHUTDOWN_TIMEOUT before its default. DDPRUN_KEEP_ORPHANS sets `keep_orphans`, and
// TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT `uninterruptible_timeout`. Rules:
//   - long flags may use dashes or underscores, "--flag value" or "--flag=value"; the last of repeated flags counts
//   - no abbreviations: an unknown flag before the script is an error that suggests the nearest flag
//   - the first word that is not a flag is the script; everything after it belongs to the script, unchanged
//   - "--" before the script is dropped
// InvalidArgument: one line that names the flag or variable, the problem and what to do.
absl::StatusOr<ParseResult> ParseOptions(const std::vector<std::string>& arguments,
                                         const EnvironmentLookup& environment);

// Parses a command line alone: no variable counts, and the script may be missing or contradict the flags.
absl::StatusOr<ParseResult> ParseFlags(const std::vector<std::string>& arguments);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_PARSE_OPTIONS_H_

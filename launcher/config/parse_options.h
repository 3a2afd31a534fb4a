#ifndef DDPRUN_LAUNCHER_CONFIG_PARSE_OPTIONS_H_
#define DDPRUN_LAUNCHER_CONFIG_PARSE_OPTIONS_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/config/environment_lookup.h"
#include "launcher/config/options.h"
#include "launcher/config/origins.h"

namespace ddprun::launcher {

// What --help or --version prints, instead of starting anything. Ends with a newline.
struct InfoText {
  std::string text;
};

struct ParsedOptions {
  Options options;
  Origins origins;
};

using ParseResult = std::variant<ParsedOptions, InfoText>;

// Reads a command line, without the program's own name, and the environment: a flag's value is the command line's,
// else that of PET_<FLAG> (an empty variable counts as unset), else the default; --shutdown-timeout also takes
// TORCH_ELASTIC_SHUTDOWN_TIMEOUT before its default. Rules:
//   - long flags with dashes or underscores, "--flag value" or "--flag=value"; a flag given twice: the last counts
//   - no abbreviations: an unknown flag before the script is an error that names the nearest flag
//   - the first word that is no flag is the script; what follows belongs to it, untouched, whatever it looks like
//   - "--" before the script is dropped
// InvalidArgument: one line that names the flag or variable, what is wrong and what to do.
absl::StatusOr<ParseResult> ParseOptions(const std::vector<std::string>& arguments,
                                         const EnvironmentLookup& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_PARSE_OPTIONS_H_

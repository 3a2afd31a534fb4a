#ifndef DDPRUN_LAUNCHER_CONFIG_FLAG_TABLE_H_
#define DDPRUN_LAUNCHER_CONFIG_FLAG_TABLE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "launcher/config/options.h"

// The table of ddprun's flags, and all that follows from it.
namespace ddprun::launcher {

// Meaning of an empty value on the command line.
enum class EmptyValue {
  kError,
  kNotGiven,  // torchrun's meaning; cluster scripts rely on it: --rdzv-id=$JOB, where JOB may be unset
};

// One flag of ddprun. The flag table is the single source for parsing, PET_ variables, the help text and completion.
struct Flag {
  // The spelling of the flag and its value.
  struct Syntax {
    const char* short_name = "";  // one letter, or ""
    EmptyValue empty_value = EmptyValue::kError;
    // The value if none is given, and a function that tells if the next word is the flag's value rather than the
    // script. Null: the value is mandatory.
    const char* bare_value = nullptr;
    bool (*is_value)(absl::string_view word) = nullptr;
    bool joins = false;     // a repeated flag adds to a list, instead of replacing the value
    bool verbatim = false;  // blanks and quotes around the value belong to it
  };

  const char* name;         // spelling with dashes, without the leading two: "rdzv-endpoint"
  const char* placeholder;  // value as shown in the help; "" for a switch, which takes no value
  const char* group;        // heading in the help
  const char* help;
  // Parses `value` into `options`, as SetFlag. Null: the flag has no effect on training results, and `help` says why.
  absl::Status (*set)(absl::string_view value, Options* options);
  Syntax syntax = {};

  bool is_switch() const { return placeholder[0] == '\0'; }
  // True if the value is, or may be, the path of a file or folder.
  bool is_path() const { return absl::EndsWith(placeholder, "FILE") || absl::EndsWith(placeholder, "DIR"); }
};

// All flags, in the order of the help.
absl::Span<const Flag> Flags();

// Parses `value` ("true" or "false" in any form for a switch) into `options`. InvalidArgument: one line, without the
// flag's name.
absl::Status SetFlag(const Flag& flag, absl::string_view value, Options* options);

// "PET_RDZV_ENDPOINT" for "rdzv-endpoint".
std::string PetVariable(absl::string_view flag);

// Error text for `given` (such as "--nnode=2"), which is not a flag, with the nearest flag or other advice.
std::string UnknownFlagText(absl::string_view given);

// Returns a script for `shell` (bash, zsh or fish) that completes ddprun's flags and their values; after the script's
// name it completes files. InvalidArgument: another shell.
absl::StatusOr<std::string> CompletionScript(absl::string_view shell);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_FLAG_TABLE_H_

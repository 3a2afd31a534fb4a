#ifndef DDPRUN_LAUNCHER_CONFIG_FLAG_TABLE_H_
#define DDPRUN_LAUNCHER_CONFIG_FLAG_TABLE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "launcher/config/options.h"

namespace ddprun::launcher {

// One flag of ddprun. The table is the only place that knows them: parsing, PET_ variables and the help text are
// made from it.
struct Flag {
  const char* name;         // with dashes, without the leading two: "rdzv-endpoint"
  const char* short_name;   // one letter, or ""
  const char* placeholder;  // what the help shows as the value; "" if the flag is a switch that takes none
  const char* group;        // heading in the help
  const char* help;
  // As SetFlag. Null: the flag can't change what a script computes; it has no effect, for the reason that `help` gives.
  absl::Status (*set)(absl::string_view value, Options* options);
  // For a flag that may stand without a value, what it then means; and whether the word after the flag is nevertheless
  // its value, rather than the script. Null: it always has a value.
  const char* bare_value = nullptr;
  bool (*is_value)(absl::string_view word) = nullptr;

  bool is_switch() const { return placeholder[0] == '\0'; }
};

// In the order of the help.
absl::Span<const Flag> Flags();

// Reads `value` ("true" or "false" in any form for a switch) into `options`. InvalidArgument: one line, without the
// flag's name.
absl::Status SetFlag(const Flag& flag, absl::string_view value, Options* options);

// Whether an empty value is as if the flag were not given, as torchrun takes it. Scripts of clusters rely on it:
// --rdzv-id=$JOB where JOB may be unset.
bool EmptyIsDefault(const Flag& flag);

// "PET_RDZV_ENDPOINT" for "rdzv-endpoint".
std::string PetVariable(const Flag& flag);

// What to tell about `given` (such as "--nnode=2"), which is no flag: that, and the nearest flag or other advice.
std::string UnknownFlagText(absl::string_view given);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_FLAG_TABLE_H_

#ifndef DDPRUN_LAUNCHER_CONFIG_LINE_PREFIX_H_
#define DDPRUN_LAUNCHER_CONFIG_LINE_PREFIX_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// torchrun's prefix of lines shown by --tee.
inline constexpr char kDefaultLinePrefix[] = "[${role_name}${local_rank}]:";
// Not expanded by ExpandLinePrefix: its value is known only when a line is shown (LinePrefixer).
inline constexpr char kTimeMacro[] = "${time}";

struct LinePrefixValues {
  std::string role_name;
  int32_t local_rank = 0;
  int32_t rank = 0;
  std::string hostname;
};

// Expands the macros role_name, local_rank, rank and hostname in `text`, written as in Python's string.Template:
// ${rank} or $rank. "$$" is a dollar sign; everything else is left unchanged (Template.safe_substitute).
std::string ExpandLinePrefix(absl::string_view text, const LinePrefixValues& values);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_LINE_PREFIX_H_

#ifndef DDPRUN_LAUNCHER_CONFIG_LINE_PREFIX_H_
#define DDPRUN_LAUNCHER_CONFIG_LINE_PREFIX_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// torchrun's prefix of lines that --tee shows.
inline constexpr char kDefaultLinePrefix[] = "[${role_name}${local_rank}]:";
// Left as it is by ExpandLinePrefix: it is known when a line is shown (LinePrefixer).
inline constexpr char kTimeMacro[] = "${time}";

struct LinePrefixValues {
  std::string role_name;
  int32_t local_rank = 0;
  int32_t rank = 0;
  std::string hostname;
};

// `text` with its macros replaced: role_name, local_rank, rank and hostname, written as in Python's string.Template,
// that is ${rank} or $rank. "$$" is a dollar sign; all else stays as it is (Template.safe_substitute).
std::string ExpandLinePrefix(absl::string_view text, const LinePrefixValues& values);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_LINE_PREFIX_H_

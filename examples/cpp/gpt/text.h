#ifndef DDPRUN_EXAMPLES_CPP_GPT_TEXT_H_
#define DDPRUN_EXAMPLES_CPP_GPT_TEXT_H_

#include <string>

#include "absl/status/statusor.h"

namespace gpt {

// The licence texts that every Debian machine has.
inline constexpr char kDefaultText[] = "/usr/share/common-licenses";

// The text to learn from: a file, or all files of a folder (without symbolic links) in the order of their names.
// NotFound: it is not there, or the folder has no files. Unavailable: it can't be read.
absl::StatusOr<std::string> ReadText(const std::string& path);

}  // namespace gpt

#endif  // DDPRUN_EXAMPLES_CPP_GPT_TEXT_H_

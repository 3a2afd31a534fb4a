#ifndef DDPRUN_EXAMPLES_CPP_GPT_TRAINING_TEXT_H_
#define DDPRUN_EXAMPLES_CPP_GPT_TRAINING_TEXT_H_

#include <string>

#include "absl/status/statusor.h"

namespace gpt {

// The licence texts that every Debian machine has.
inline constexpr char kDefaultText[] = "/usr/share/common-licenses";

// The training text: a file, or all files of a directory (without symbolic links) in name order.
// NotFound: it does not exist, or the directory has no files. Unavailable: it can't be read.
absl::StatusOr<std::string> ReadText(const std::string& path);

}  // namespace gpt

#endif  // DDPRUN_EXAMPLES_CPP_GPT_TRAINING_TEXT_H_

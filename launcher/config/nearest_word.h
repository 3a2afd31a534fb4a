#ifndef DDPRUN_LAUNCHER_CONFIG_NEAREST_WORD_H_
#define DDPRUN_LAUNCHER_CONFIG_NEAREST_WORD_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun::launcher {

// Returns the word that `given` was probably meant to be: one that begins with it, else the one with the smallest
// number of letters to insert, drop, change or swap with a neighbour (at most a third of its length). None if no word
// is near.
std::optional<std::string> NearestWord(absl::string_view given, absl::Span<const std::string> words);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_NEAREST_WORD_H_

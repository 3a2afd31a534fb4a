#include "base/text_check.h"

#include <cstddef>

#include "base/text.h"

namespace ddprun {

bool IsUtf8(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = Utf8CharacterLength(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

bool HasControl(absl::string_view bytes) {
  return bytes.find_first_of("\n\t") != absl::string_view::npos || CleanText(bytes) != bytes;
}

}  // namespace ddprun

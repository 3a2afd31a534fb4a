#include "rendezvous/core/inspection.h"

#include <algorithm>

#include "absl/strings/strip.h"
#include "base/text.h"

namespace ddprun::rendezvous {

std::string PlainLine(absl::string_view line) {
  while (absl::ConsumeSuffix(&line, "\r")) {
  }
  line.remove_prefix(std::min(line.rfind('\r') + 1, line.size()));
  std::string plain;
  while (!line.empty()) {
    const size_t begin = std::min(line.find("\x1b["), line.size());
    plain.append(line.data(), begin);
    line.remove_prefix(begin);
    // A control sequence: parameters, and one final byte.
    if (!line.empty()) line.remove_prefix(std::min(line.find_first_not_of("0123456789;?", 2), line.size() - 1) + 1);
  }
  return CleanText(plain);
}

}  // namespace ddprun::rendezvous

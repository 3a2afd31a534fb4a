#include "base/random_id.h"

#include <sys/random.h>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace ddprun {

std::string RandomId() {
  char bytes[16];
  // Requests of up to 256 bytes are neither interrupted nor cut short (getrandom(2)).
  (void)!getrandom(bytes, sizeof bytes, 0);
  return absl::BytesToHexString(absl::string_view(bytes, sizeof bytes));
}

}  // namespace ddprun

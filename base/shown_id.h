#ifndef DDPRUN_BASE_SHOWN_ID_H_
#define DDPRUN_BASE_SHOWN_ID_H_

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "base/secret.h"

namespace ddprun {

// Returns a stable, unique stand-in for a node's id that may be displayed, because it can't be used to join.
inline std::string ShownId(const std::string& node_id) {
  return absl::BytesToHexString(absl::string_view(SecretDigest(node_id)).substr(0, 6));
}

}  // namespace ddprun

#endif  // DDPRUN_BASE_SHOWN_ID_H_

#ifndef DDPRUN_BASE_SHOWN_ID_H_
#define DDPRUN_BASE_SHOWN_ID_H_

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "base/secret.h"

namespace ddprun {

// What people are shown instead of a node's id: it tells nodes apart and does not change, but nobody can join with it.
inline std::string ShownId(const std::string& node_id) {
  return absl::BytesToHexString(absl::string_view(SecretDigest(node_id)).substr(0, 6));
}

}  // namespace ddprun

#endif  // DDPRUN_BASE_SHOWN_ID_H_

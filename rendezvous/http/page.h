#ifndef DDPRUN_RENDEZVOUS_HTTP_PAGE_H_
#define DDPRUN_RENDEZVOUS_HTTP_PAGE_H_

#include <optional>

#include "absl/strings/string_view.h"

namespace ddprun::http {

// A file of the web page, embedded in the program. Valid as long as the program runs.
struct Asset {
  absl::string_view type;
  absl::string_view text;
};

// Returns the file at a path of the server ("/", "/page.js"); nullopt if there is none. Thread-safe.
std::optional<Asset> FindAsset(absl::string_view path);

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_PAGE_H_

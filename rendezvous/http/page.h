#ifndef DDPRUN_RENDEZVOUS_HTTP_PAGE_H_
#define DDPRUN_RENDEZVOUS_HTTP_PAGE_H_

#include <optional>

#include "absl/strings/string_view.h"

namespace ddprun::http {

// A file of the page, which is part of the program. Lives as long as the program.
struct Asset {
  absl::string_view type;
  absl::string_view text;
};

// The file that a path of the server shows ("/", "/page.js"); nullopt: none. Thread-safe.
std::optional<Asset> FindAsset(absl::string_view path);

}  // namespace ddprun::http

#endif  // DDPRUN_RENDEZVOUS_HTTP_PAGE_H_

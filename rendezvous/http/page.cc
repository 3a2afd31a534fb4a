#include "rendezvous/http/page.h"

#include "rendezvous/http/page_files.inc"

namespace ddprun::http {

std::optional<Asset> FindAsset(absl::string_view path) {
  const auto text = [](const unsigned char* bytes, size_t size) {
    return absl::string_view(reinterpret_cast<const char*>(bytes), size);
  };
  if (path == "/") return Asset{"text/html; charset=utf-8", text(kIndexHtml, sizeof(kIndexHtml))};
  if (path == "/page.css") return Asset{"text/css; charset=utf-8", text(kPageCss, sizeof(kPageCss))};
  if (path == "/page.js") return Asset{"text/javascript; charset=utf-8", text(kPageJs, sizeof(kPageJs))};
  return std::nullopt;
}

}  // namespace ddprun::http

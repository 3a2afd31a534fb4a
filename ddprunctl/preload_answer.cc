#include "ddprunctl/preload_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/fork_server/kept_sockets.h"

namespace ddprun::ctl {

std::string PreloadAnswer(const std::string& action, bool json) {
  using launcher::KeptSockets;
  const absl::StatusOr<KeptSockets> sockets = KeptSockets::Open(/*create=*/false);
  nlohmann::json list = nlohmann::json::array();
  std::string text;
  for (const std::string& path : sockets.ok() ? sockets->All() : std::vector<std::string>()) {
    const std::string answer = KeptSockets::Ask(path, action);
    nlohmann::json server;
    for (const absl::string_view field : absl::StrSplit(answer, '\0', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> parts = absl::StrSplit(field, absl::MaxSplits('=', 1));
      server[parts.first] = parts.second;
      absl::StrAppend(&text, server.size() == 1 ? "" : "  ", parts.first, ": ", parts.second, "\n");
    }
    if (!server.empty()) list.push_back(std::move(server));
  }
  if (json) return absl::StrCat(nlohmann::json{{"servers", std::move(list)}}.dump(), "\n");
  return text.empty() ? "no fork server is kept\n" : text;
}

}  // namespace ddprun::ctl

#include "rendezvous/server/call_guard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/text.h"
#include "rendezvous/wire/channel_security.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::Duration kLogInterval = absl::Seconds(10);
constexpr size_t kMaxNamesBytes = 256;

// Of the caller's certificate: its subject alternative names, or the common name if it has none.
std::vector<std::string> NamesOf(const grpc::AuthContext& caller) {
  std::vector<std::string> names;
  for (const char* property : {"x509_subject_alternative_name", "x509_common_name"}) {
    for (const grpc::string_ref& value : caller.FindPropertyValues(property)) {
      names.emplace_back(value.data(), value.size());
    }
    if (!names.empty()) break;
  }
  return names;
}

}  // namespace

absl::Status CallGuard::Check(const grpc::ServerContextBase& context) {
  absl::Status status = Decide(context);
  if (!status.ok()) LogRefusal(AddressOfPeer(context.peer()), status);
  return status;
}

absl::Status CallGuard::Decide(const grpc::ServerContextBase& context) {
  if (!credentials_.tls_allowed_names.empty()) {
    const std::vector<std::string> names = NamesOf(*context.auth_context());
    const auto& allowed = credentials_.tls_allowed_names;
    const auto is_allowed = [&](const std::string& name) {
      return std::any_of(allowed.begin(), allowed.end(),
                         [&](const std::string& other) { return absl::EqualsIgnoreCase(name, other); });
    };
    if (!std::any_of(names.begin(), names.end(), is_allowed)) {
      return absl::PermissionDeniedError("the certificate has none of the names that this server allows");
    }
  }
  if (!credentials_.has_token()) return absl::OkStatus();
  const auto& metadata = context.client_metadata();
  const auto shown = metadata.find(kAuthorization);
  if (shown == metadata.end()) return absl::UnauthenticatedError("this server wants a token, and none was shown");
  absl::string_view token(shown->second.data(), shown->second.size());
  if (!absl::ConsumePrefix(&token, kBearer) || !tokens_.Accept(token)) {
    return absl::UnauthenticatedError("the token is not one of this server's");
  }
  return absl::OkStatus();
}

void CallGuard::LogRefusal(const std::string& peer, const absl::Status& why) {
  int unlogged = 0;
  {
    MutexLock lock(&mutex_);
    const SteadyTime now = SteadyNow();
    if (now < next_line_) {
      ++unlogged_;
      return;
    }
    next_line_ = now + kLogInterval;
    unlogged = std::exchange(unlogged_, 0);
  }
  Log(LogLevel::kWarning,
      absl::StrCat("refused a call from ", peer, ": ", why.message(),
                   unlogged > 0 ? absl::StrCat(" (and ", unlogged, " more since the last such line)") : ""));
}

std::string AddressOfPeer(const std::string& peer) {
  std::string text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  absl::string_view address = text;
  if (!absl::ConsumePrefix(&address, "ipv4:")) absl::ConsumePrefix(&address, "ipv6:");
  address = address.substr(0, address.rfind(':'));
  if (absl::ConsumePrefix(&address, "[")) absl::ConsumeSuffix(&address, "]");
  absl::ConsumePrefix(&address, "::ffff:");
  return OneLine(address, kMaxNamesBytes);
}

}  // namespace ddprun::rendezvous

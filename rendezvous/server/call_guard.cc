#include "rendezvous/server/call_guard.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "rendezvous/wire/channel_security.h"
#include "rendezvous/wire/completion.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kMaxNamesBytes = 256;
constexpr char kNoMunge[] =
    "this server requires a MUNGE credential of its own user, and none was shown: start all launchers of the job with "
    "srun, check munge on their hosts (munge -n | unmunge), or give all of them a token (--token-file)";

// The subject alternative names of the caller's certificate, or its common name if it has none.
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

std::string UserName() {
  std::array<char, 4096> buffer;
  passwd entry;
  passwd* found = nullptr;
  getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found);
  return found != nullptr ? std::string(found->pw_name) : absl::StrCat("uid ", geteuid());
}

}  // namespace

CallGuard::CallGuard(const Credentials& credentials) : credentials_(credentials), tokens_(credentials) {
  if (!credentials.munge || credentials.has_token()) return;
  munge_.emplace(credentials.munge_socket);
  munge_user_ = UserName();
}

bool CallGuard::demanding() const {
  return credentials_.has_token() || munge_.has_value() || !credentials_.tls_allowed_names.empty();
}

bool CallGuard::AuthenticatesCallers() const {
  return credentials_.has_token() || !credentials_.tls_ca.empty() || (munge_ && has_munge_);
}

void CallGuard::Check(const grpc::ServerContextBase& context, Role needed, Done done) {
  const std::string peer = AddressOfPeer(context.peer());
  const std::vector<std::string> names = NamesOf(*context.auth_context());
  Caller caller{.address = names.empty() ? peer : OneLine(names[0], kMaxNamesBytes)};
  const auto& metadata = context.client_metadata();
  const auto shown = metadata.find(kAuthorization);
  const std::string authorization =
      shown == metadata.end() ? "" : std::string(shown->second.data(), shown->second.size());
  absl::Status status = CheckNames(names);
  if (status.ok() && munge_) return CheckMunge(authorization, peer, std::move(caller), std::move(done));
  if (status.ok() && credentials_.has_token()) status = CheckToken(authorization, needed, &caller);
  if (!status.ok()) return Finish(peer, status, done);
  Finish(peer, std::move(caller), done);
}

void CallGuard::Stop() {
  if (munge_) munge_->Stop();
}

absl::Status CallGuard::CheckNames(const std::vector<std::string>& names) const {
  const auto& allowed = credentials_.tls_allowed_names;
  if (allowed.empty()) return absl::OkStatus();
  const auto is_allowed = [&](const std::string& name) {
    return std::any_of(allowed.begin(), allowed.end(),
                       [&](const std::string& other) { return absl::EqualsIgnoreCase(name, other); });
  };
  if (std::any_of(names.begin(), names.end(), is_allowed)) return absl::OkStatus();
  return absl::PermissionDeniedError("no name in the client certificate is allowed (--tls-allowed-names)");
}

absl::Status CallGuard::CheckToken(const std::string& authorization, Role needed, Caller* caller) {
  if (authorization.empty()) return absl::UnauthenticatedError("no token given; this server requires one");
  const std::optional<absl::string_view> token = BearerToken(authorization);
  DDPRUN_ASSIGN_OR_RETURN(const Caller holder,
                          token.has_value() ? tokens_.Check(*token) : absl::UnauthenticatedError("invalid token"));
  if (holder.role < needed) {
    return absl::PermissionDeniedError(absl::StrCat("the token of ", holder.name, " has role ", Name(holder.role),
                                                    "; this call requires role ", Name(needed),
                                                    needed == Role::kAdmin ? "" : " or admin"));
  }
  caller->role = holder.role;
  caller->name = holder.name;
  return absl::OkStatus();
}

void CallGuard::CheckMunge(const std::string& authorization, const std::string& peer, Caller caller, Done done) {
  absl::string_view credential = authorization;
  if (!absl::ConsumePrefix(&credential, kMunge)) credential = "";
  // A missing credential is verified as well: the first answer tells whether munge is available here.
  munge_->Verify(std::string(credential), [this, peer, caller = std::move(caller), done = std::move(done),
                                           missing = credential.empty()](absl::Status status) {
    if (missing && absl::IsUnauthenticated(status)) {
      status = absl::UnauthenticatedError(kNoMunge);
    } else if (absl::IsUnavailable(status)) {
      status = absl::UnavailableError(absl::StrCat("munge on the server's host does not answer: ", status.message()));
    }
    PostTo(queue_, [this, peer, caller, done, status = std::move(status)]() mutable {
      if (!MungeIsAbsent(status)) {
        if (!status.ok()) return Finish(peer, status, done);
        caller.name = munge_user_;
      }
      Finish(peer, std::move(caller), done);
    });
  });
}

bool CallGuard::MungeIsAbsent(const absl::Status& status) {
  if (absl::IsCancelled(status) || absl::IsResourceExhausted(status)) return false;  // munge was not asked
  const bool absent = absl::IsFailedPrecondition(status);
  if (absent == !std::exchange(has_munge_, !absent)) return absent;
  Log(LogLevel::kWarning, absent ? absl::StrCat("munge is not available on this host (", status.message(),
                                                "): launchers of any user may join; to prevent that, install "
                                                "munge or give all launchers a token (--token-file)")
                                 : "munge is now available on this host: from now on launchers need a credential");
  return absent;
}

void CallGuard::Finish(const std::string& peer, absl::StatusOr<Caller> caller, const Done& done) {
  const absl::Status& status = caller.status();
  if (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status)) {
    log_.Warn(absl::StrCat("refused a call from ", peer, ": ", status.message()));
  }
  done(std::move(caller));
}

std::string OwnName(const Credentials& credentials) {
  if (!credentials.has_token()) return credentials.munge ? UserName() : "";
  Tokens tokens(credentials);
  const std::optional<Caller> holder = tokens.Accept(tokens.OwnToken());
  return holder.has_value() ? holder->name : "";
}

}  // namespace ddprun::rendezvous

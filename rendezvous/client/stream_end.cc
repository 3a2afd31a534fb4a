#include "rendezvous/client/stream_end.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/text.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::string_view kUnresolved = "DNS resolution failed for ";

// Extracts the cause: "connection refused".
std::string Cause(absl::string_view text) {
  if (absl::StrContains(text, kUnresolved)) {
    // "...: C-ares status is not ARES_SUCCESS qtype=A name=host is_balancer=0: Domain name not found".
    const size_t at = text.rfind(": ");
    return absl::StrCat("can't resolve the host name",
                        at == absl::string_view::npos ? "" : absl::AsciiStrToLower(text.substr(at)));
  }
  std::string cause = absl::StrReplaceAll(GrpcCause(text), {{"\n", " "}, {"\r", " "}});
  if (cause.empty()) return "connection lost";
  // Lower-case "Connection refused", but not "IPv6 ..." or a host's name.
  if (cause.size() > 1 && absl::ascii_islower(cause[1])) cause[0] = absl::ascii_tolower(cause[0]);
  return cause;
}

// True if gRPC reached a peer that is not a gRPC server.
bool SpeaksAnotherProtocol(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable) return true;
  const std::string text = absl::AsciiStrToLower(status.message());
  for (const absl::string_view sign : {"http1.x", "http/2", "http status", "settings", "frame"}) {
    if (absl::StrContains(text, sign)) return true;
  }
  return false;
}

}  // namespace

bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) || absl::IsAborted(status) ||
         absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
}

bool IsTlsFailure(StreamProgress progress, const absl::Status& status) {
  return progress == StreamProgress::kNone && absl::IsUnavailable(status) &&
         !absl::StrContains(status.message(), "Failed to connect to remote host") &&
         !absl::StrContains(status.message(), kUnresolved);
}

std::string DescribeTlsFailure(const absl::Status& status) {
  return absl::StrCat("TLS handshake failed: ", Cause(status.message()),
                      "; check --tls-ca, --tls-cert and certificate expiry on both sides");
}

Disconnected DescribeEnd(absl::string_view address, StreamProgress progress, const absl::Status& status) {
  switch (progress) {
    case StreamProgress::kNone:
      if (SpeaksAnotherProtocol(status)) {
        return {absl::StrCat(address, ": not a ddprun rendezvous server")};
      }
      return {absl::StrCat(address, ": ", Cause(status.message()))};
    case StreamProgress::kTimedOut: return {absl::StrCat(address, ": no answer")};
    case StreamProgress::kFollower: return {absl::StrCat(address, ": ", status.message())};
    case StreamProgress::kAbandoned: return {absl::StrCat(address, ": not responding")};
    case StreamProgress::kOpen: break;
  }
  if (IsRefusal(status)) {
    return {absl::StrCat("rendezvous server at ", address, " refused: ", Cause(status.message())), true};
  }
  if (status.ok()) return {absl::StrCat(address, ": connection closed by the server")};
  return {absl::StrCat(address, ": ", Cause(status.message()))};
}

}  // namespace ddprun::rendezvous

#include "ddprunctl/control_client.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/endpoint.h"
#include "rendezvous/client/stream_end.h"
#include "rendezvous/wire/channel_security.h"
#include "rendezvous/wire/leader_hint.h"

namespace ddprun::ctl {
namespace {

// Redirects followed per call.
constexpr int kMaxRedirects = 3;
constexpr int kMaxAnswerBytes = 256 << 20;  // enough for a job of 100,000 nodes

// Returns the caller's authorization; empty if there is none.
absl::StatusOr<std::string> AuthorizationOf(rendezvous::ClientSecurity* security) {
  if (std::optional<std::string> known = security->Authorization()) return *std::move(known);
  std::promise<absl::StatusOr<std::string>> asked;
  std::future<absl::StatusOr<std::string>> answer = asked.get_future();
  security->AskForAuthorization([&asked](absl::StatusOr<std::string> text) { asked.set_value(std::move(text)); });
  return answer.get();
}

// Describes why a server did not answer: "127.0.0.1:29400: connection refused". `connected`: there was a connection.
std::string DescribeSilence(const std::string& server, bool connected, bool has_tls, const absl::Status& status) {
  constexpr auto kNone = rendezvous::StreamProgress::kNone;
  const std::string what = rendezvous::DescribeEnd(server, kNone, status).reason;
  if (connected || !rendezvous::IsTlsFailure(kNone, status)) return what;
  if (has_tls) return absl::StrCat(server, ": ", rendezvous::DescribeTlsFailure(status));
  return absl::StrCat(what, " (a server with TLS needs --tls-ca, and perhaps --tls-cert and --tls-key)");
}

}  // namespace

absl::Status Client::CallOne(const std::string& server, const Make& make, absl::Duration timeout, std::string* leader,
                             bool* answered) {
  *answered = true;
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(server);
  if (!endpoint.ok()) return endpoint.status();
  rendezvous::ClientSecurity security(credentials_, endpoint->host);
  const absl::StatusOr<std::string> authorization = AuthorizationOf(&security);
  if (!authorization.ok()) return authorization.status();
  *answered = false;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);  // event streams may be silent for a long time
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  const std::shared_ptr<grpc::ChannelCredentials> credentials = security.ForChannel(&arguments);
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(server, credentials, arguments);
  v1::Rendezvous::Stub rendezvous_stub(channel);
  v1::Control::Stub control_stub(channel);
  grpc::ClientContext context;
  if (timeout < absl::InfiniteDuration()) {
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(absl::ToInt64Milliseconds(timeout)));
  }
  if (!authorization->empty()) context.AddMetadata(rendezvous::kAuthorization, *authorization);
  grpc::Status status = make(Target{&context, &rendezvous_stub, &control_stub});
  const auto& trailing = context.GetServerTrailingMetadata();
  if (const auto hint = trailing.find(rendezvous::kLeaderKey); hint != trailing.end()) {
    *leader = std::string(hint->second.data(), hint->second.size());
  }
  if (trailing.count(rendezvous::kFollowerKey) > 0) {
    return absl::UnavailableError(absl::StrCat(server, ": ", status.error_message()));
  }
  const absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  // A lost connection is idle.
  const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/false);
  const bool lost = absl::IsUnavailable(result) && state == GRPC_CHANNEL_IDLE;
  if (lost || absl::IsDeadlineExceeded(result) || absl::IsCancelled(result)) may_have_arrived_ = true;
  // If the connection still exists, UNAVAILABLE comes from the server.
  *answered = !absl::IsUnavailable(result) || state == GRPC_CHANNEL_READY;
  if (*answered) return result;
  return absl::UnavailableError(DescribeSilence(server, state == GRPC_CHANNEL_IDLE, security.has_tls(), result));
}

absl::Status Client::Call(const Make& make, absl::Duration timeout) {
  std::vector<std::string> queue = servers_, problems;
  const size_t most = servers_.size() + kMaxRedirects;
  for (size_t i = 0; i < queue.size() && i < most; ++i) {
    std::string leader;
    bool answered = false;
    const absl::Status status = CallOne(queue[i], make, timeout, &leader, &answered);
    if (answered) return status;
    problems.emplace_back(status.message());
    if (leader.empty()) continue;
    // Try the leader's address next, unless it has just been tried.
    if (std::find(queue.begin(), queue.begin() + static_cast<ptrdiff_t>(i) + 1, leader) ==
        queue.begin() + static_cast<ptrdiff_t>(i) + 1) {
      queue.insert(queue.begin() + static_cast<ptrdiff_t>(i) + 1, leader);
    }
  }
  return absl::UnavailableError(
      absl::StrCat("no answer from the rendezvous server (--server): ", absl::StrJoin(problems, "; ")));
}

}  // namespace ddprun::ctl

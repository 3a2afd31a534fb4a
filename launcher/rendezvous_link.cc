#include "launcher/rendezvous_link.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/endpoint.h"
#include "base/local_jobs.h"
#include "base/log.h"
#include "base/process.h"
#include "base/secret.h"
#include "base/socket_address.h"
#include "base/status_macros.h"
#include "launcher/process/proc_files.h"
#include "rendezvous/client/grpc_client.h"
#include "rendezvous/client/local_client.h"
#include "rendezvous/server/call_guard.h"
#include "rendezvous/server/listen.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/credential_files.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kShortestTry = absl::Milliseconds(50);

}  // namespace

std::string RendezvousLink::ServerName(const LaunchConfig& config) {
  if (config.server_place == ServerPlace::kInProcess) return "this process";
  return absl::StrCat(ServersText(config),
                      config.hosted_by_rank_zero ? ", which the node with --node-rank=0 hosts" : "");
}

RendezvousLink::RendezvousLink(const LaunchConfig* config, HostAddresses host, EventLoop* loop, Handler handler)
    : config_(config), host_(std::move(host)), loop_(loop), handler_(std::move(handler)) {}

// Destroy the client first: it calls the driver.
RendezvousLink::~RendezvousLink() {
  if (local_jobs_.valid()) loop_->RemoveFd(local_jobs_.get());
  client_ = nullptr;
  local_server_ = nullptr;
  server_ = nullptr;
}

absl::StatusOr<std::unique_ptr<RendezvousLink>> RendezvousLink::Open(const LaunchConfig* config, HostAddresses host,
                                                                     EventLoop* loop, Handler handler) {
  std::unique_ptr<RendezvousLink> link(new RendezvousLink(config, std::move(host), loop, std::move(handler)));
  if (config->server_place != ServerPlace::kInProcess) DDPRUN_RETURN_IF_ERROR(rendezvous::PrepareGrpc());
  if (link->host_.may_host) DDPRUN_RETURN_IF_ERROR(CheckHostedPort(*config));
  if (config->server_place == ServerPlace::kInProcess || link->host_.may_host) {
    const absl::Status status = link->Host();
    const bool required = config->server_place != ServerPlace::kHereIfLocal;
    if (!status.ok() && (required || !absl::IsAlreadyExists(status))) {
      const char* const or_elsewhere = required ? "" : "; if rendezvousd runs here, set --rdzv-conf=is_host=0";
      return absl::Status(status.code(),
                          absl::StrCat("can't host the rendezvous server: ", status.message(), or_elsewhere));
    }
  }
  if (!link->hosting_) link->Connect();
  link->ListenForLocalJobs();
  return link;
}

absl::Status RendezvousLink::Host() {
  auto driver = std::make_unique<rendezvous::Driver>(rendezvous::Driver::Host::kLauncher, rendezvous::SavedState(),
                                                     nullptr, &events_);
  if (config_->server_place != ServerPlace::kInProcess) {
    std::vector<std::string> ignored;  // already logged
    DDPRUN_RETURN_IF_ERROR(CheckCredentials(config_->credentials, rendezvous::CredentialSide::kBoth, &ignored));
    std::vector<std::string> addresses;
    for (const std::string& host : host_.serving) {
      addresses.push_back(Endpoint{host, config_->endpoint.port}.ToString());
    }
    DDPRUN_ASSIGN_OR_RETURN(
        server_, rendezvous::Server::Start(driver.get(), addresses,
                                           {.credentials = config_->credentials, .listener = config_->listener}));
    const bool loopback = std::all_of(host_.serving.begin(), host_.serving.end(), IsLoopbackHost);
    serving_ = absl::StrCat("this node serves at ", absl::StrJoin(server_->addresses(), ", "),
                            host_.note.empty() ? "" : absl::StrCat(" (", host_.note, ")"),
                            loopback ? ", which no other host can reach" : "");
    Log(LogLevel::kInfo, absl::StrCat("hosting the rendezvous server: ", serving_));
  }
  driver_ = std::move(driver);
  hosting_ = true;
  ++generation_;
  client_ = rendezvous::NewLocalClient(driver_.get(), ForwardToLoop(), OwnName(config_->credentials));
  return absl::OkStatus();
}

void RendezvousLink::ListenForLocalJobs() {
  const absl::StatusOr<int> listener = ddprun::ListenForLocalJobs();
  absl::Status status = listener.status();
  if (listener.ok()) {
    local_jobs_ = UniqueFd(*listener);
    status = loop_->AddFd(local_jobs_.get(), EPOLLIN, [this](uint32_t) { OnLocalQuestion(); });
  }
  if (!status.ok()) Log(LogLevel::kWarning, absl::StrCat("ddprunctl can't find this job: ", status.message()));
}

void RendezvousLink::OnLocalQuestion() {
  const int connection = AcceptLocalJob(local_jobs_.get());
  if (connection < 0) return;
  const absl::Status status = HostLocally();
  if (!status.ok()) Log(LogLevel::kWarning, absl::StrCat("can't serve ddprunctl: ", status.message()));
  AnswerLocalJob(connection, {.server = LocalServer(), .job_id = config_->job_id, .token = local_token_});
}

absl::Status RendezvousLink::HostLocally() {
  if (!hosting_ || server_ != nullptr || local_server_ != nullptr) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(rendezvous::PrepareGrpc());
  local_token_ = absl::BytesToHexString(RandomSecret());
  DDPRUN_ASSIGN_OR_RETURN(local_server_, rendezvous::Server::Start(driver_.get(), {"127.0.0.1:0"},
                                                                   {.credentials = {.token = local_token_}}));
  return absl::OkStatus();
}

std::string RendezvousLink::LocalServer() const {
  if (!hosting_) return ServersText(*config_);
  if (server_ == nullptr) return local_server_ == nullptr ? "" : local_server_->addresses().front();
  // A server takes commands of its own user from the host's loopback only.
  for (const std::string& address : server_->addresses()) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(address);
    if (!endpoint.ok()) continue;
    if (rendezvous::IsEveryAddress(endpoint->host)) return Endpoint{"127.0.0.1", endpoint->port}.ToString();
    if (IsLoopbackHost(endpoint->host)) return address;
  }
  return server_->addresses().front();
}

void RendezvousLink::Connect() {
  ++generation_;
  // Attempts shorter than a round trip can't succeed. The timeout grows with further attempts anyway.
  const absl::Duration patience = std::max(ToDuration(config_->settings.heartbeat_timeout()) / 12, kShortestTry);
  std::vector<Endpoint> servers = {config_->endpoint};
  servers.insert(servers.end(), config_->more_endpoints.begin(), config_->more_endpoints.end());
  client_ = rendezvous::NewGrpcClient(servers, ForwardToLoop(), patience, config_->credentials);
}

rendezvous::Client::Handler RendezvousLink::ForwardToLoop() {
  return [this, generation = generation_](rendezvous::ClientEvent event) {
    loop_->Post([this, generation, event = std::move(event)] {
      if (generation == generation_) Handle(event);
    });
  };
}

void RendezvousLink::Handle(const rendezvous::ClientEvent& event) {
  const auto* message = std::get_if<rendezvous::ServerMessage>(&event);
  if (message != nullptr && !hosting_ && host_.may_host) {
    if (const auto* welcome = std::get_if<rendezvous::Welcome>(message)) {
      server_process_.OnServer(welcome->server_process());
    }
    if (const auto* assign = std::get_if<rendezvous::Assign>(message)) {
      server_process_.OnRound(assign->assignment().round());
    }
  }
  handler_(event);
}

void RendezvousLink::Send(rendezvous::LauncherMessage message) {
  if (auto* join = std::get_if<rendezvous::Join>(&message); join != nullptr && hosting_ && join->has_current()) {
    join->mutable_origin()->set_server_node_ended(server_process_.HasEnded(join->current().round()));
  }
  client_->Send(std::move(message));
}

void RendezvousLink::TakeOver() {
  if (hosting_ || !host_.may_host) return;
  const absl::Status status = Host();
  if (status.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("took over the rendezvous server at ", config_->endpoint.ToString()));
  }
}

void RendezvousLink::Disconnect() {
  client_->Close();
  client_ = nullptr;
}

void RendezvousLink::LingerForOthers(SteadyTime deadline, SteadyTime leavers_deadline) {
  // Without a verdict the job continues, so there is nothing for the others to fetch.
  const std::optional<v1::Job> job = driver_->GetJob(config_->job_id);
  if (job && rendezvous::IsEnd(rendezvous::StateOf(*job))) driver_->WaitUntilLaunchersLeft(deadline);
  driver_->WaitUntilLeaversLeft(leavers_deadline);
}

void RendezvousLink::StopLingering() { driver_->StopWaiting(); }

void RendezvousLink::Close() {
  if (server_ != nullptr) server_->Shutdown();
}

void ServerProcess::OnServer(const std::string& process_name) {
  present_ = nullptr;
  const pid_t pid = PidOfProcess(process_name);
  if (pid == 0 || pid == getpid()) return;
  UniqueFd pidfd = OpenPidfd(pid);
  if (pidfd.valid()) present_ = std::make_shared<const UniqueFd>(std::move(pidfd));
}

void ServerProcess::OnRound(uint64_t round) {
  of_round_ = present_;
  round_ = round;
}

bool ServerProcess::HasEnded(uint64_t round) const {
  if (of_round_ == nullptr || round != round_) return false;
  pollfd watched = {of_round_->get(), POLLIN, 0};
  return poll(&watched, 1, static_cast<int>(absl::ToInt64Milliseconds(kExitTime))) == 1 &&
         (watched.revents & POLLIN) != 0;
}

}  // namespace ddprun::launcher

#include "launcher/round_store.h"

#include <sys/epoll.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/secret.h"
#include "base/status_macros.h"
#include "launcher/config/flag_value.h"
#include "launcher/io/net.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {

RoundStore::RoundStore(const LaunchConfig* config, HostAddresses place, std::string host, EventLoop* loop,
                       Events events)
    : config_(config), place_(std::move(place)), host_(std::move(host)), loop_(loop), events_(std::move(events)) {}

absl::StatusOr<RoundStore::Opened> RoundStore::Open() {
  Close();
  secret_ = RandomSecret();
  Opened opened;
  absl::StatusOr<std::unique_ptr<StoreServer>> server = OpenServer(&opened.note);
  absl::Status status = server.status();
  if (server.ok()) {
    server_ = *std::move(server);
    reported_joined_ = 0;
    status = loop_->AddFd(server_->PollFd(), EPOLLIN, [this](uint32_t) {
      server_->ProcessReady();
      ReportRanksJoined();
      if (server_->AnyWaits()) waits_.OnWaits(SteadyNow());
    });
  }
  if (!status.ok()) {
    return absl::Status(
        status.code(),
        absl::StrCat("can't open the store at ", place_.address, ": ", status.message(), "; try ",
                     config_->options.port_range ? "a wider --port-range or " : "", "another --local-addr"));
  }
  opened.store = {server_->port(), secret_};
  return opened;
}

absl::StatusOr<std::unique_ptr<StoreServer>> RoundStore::OpenServer(std::string* note) {
  StoreOptions options;
  options.address = place_.address;
  options.secret = secret_;
  options.on_evidence = events_.on_evidence;
  if (config_->store_port == 0) return OpenAtFreePort(std::move(options));
  options.first_port = options.last_port = config_->store_port;
  absl::StatusOr<std::unique_ptr<StoreServer>> wanted = StoreServer::Open(options);
  if (wanted.ok()) return wanted;
  options.first_port = options.last_port = 0;
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<StoreServer> server, OpenAtFreePort(std::move(options)));
  *note = absl::StrCat("--master-port=", config_->store_port, " is not available: ", wanted.status().message(),
                       "; this round's store is at ", Endpoint{place_.master, server->port()}.ToString());
  return server;
}

absl::StatusOr<std::unique_ptr<StoreServer>> RoundStore::OpenAtFreePort(StoreOptions options) {
  if (!config_->options.port_range) return StoreServer::Open(std::move(options));
  absl::StatusOr<std::unique_ptr<StoreServer>> server =
      absl::ResourceExhaustedError(absl::StrCat("no port of ", config_->options.port_range->ToString(), " is free"));
  for (const PortRange& part : StorePorts(*config_->options.port_range, config_->endpoint.port, last_port_)) {
    options.first_port = part.first;
    options.last_port = part.last;
    server = StoreServer::Open(options);
    if (!server.ok()) continue;
    last_port_ = (*server)->port();
    break;
  }
  return server;
}

void RoundStore::BeginRound(const rendezvous::Assignment& assignment) {
  unregistered_ = assignment;
  // Stores of other nodes stay open, unused: a later Ready may announce the same port again.
  if (assignment.group_rank() != 0) return;
  server_->BeginRound(assignment.round(), assignment.world_size());
  waits_.StartRound(assignment.world_size());
}

void RoundStore::Register(const std::vector<pid_t>& pids) {
  if (!unregistered_) return;
  const rendezvous::Assignment assignment = *std::exchange(unregistered_, std::nullopt);
  NodeRegistration node;
  node.round = assignment.round();
  node.base_rank = assignment.base_rank();
  node.host = host_;
  node.secret = assignment.store_secret();
  for (const InterfaceAddress& own : LocalAddresses()) {
    if (!own.loopback && !own.link_local) node.addresses.push_back(own.address);
  }
  for (const pid_t pid : pids) node.pids.push_back(static_cast<uint32_t>(pid));
  if (assignment.group_rank() != 0) return RegisterElsewhere(assignment, node);
  // On failure the local workers are still served; only the names of missing ranks are unknown.
  (void)server_->RegisterLocal(node);
  ReportRanksJoined();
}

void RoundStore::RegisterElsewhere(const rendezvous::Assignment& assignment, const NodeRegistration& node) {
  events_.on_registering();
  absl::StatusOr<std::unique_ptr<RegistrationClient>> client =
      RegistrationClient::Start(assignment.master_addr(), assignment.master_port(), node);
  if (!client.ok()) return events_.on_store_reached(client.status());
  registration_ = *std::move(client);
  const absl::Status watched = loop_->AddFd(registration_->PollFd(), EPOLLIN, [this](uint32_t) {
    const RegistrationClient::State state = registration_->OnReady();
    if (state == RegistrationClient::State::kBackingOff) {
      events_.on_store_reached(registration_->status());
    } else if (state != RegistrationClient::State::kConnecting) {
      // The remote launcher may be slow to answer, but its store is reachable for workers.
      events_.on_store_reached(absl::OkStatus());
    }
  });
  if (watched.ok()) return;
  registration_ = nullptr;
  events_.on_store_reached(watched);
}

void RoundStore::ReportRanksJoined() {
  const int joined = server_->Joined();
  if (joined == reported_joined_) return;
  reported_joined_ = joined;
  events_.on_ranks_joined(joined);
}

std::string RoundStore::MissingText(absl::Duration waited) const {
  if (server_ == nullptr) return "";
  const std::vector<MissingRank> missing = server_->Missing();
  if (missing.empty() || server_->Joined() == 0) return "";
  std::vector<int32_t> waiting;
  for (const WaitingClient& client : server_->Waiting()) {
    if (client.rank) waiting.push_back(*client.rank);
  }
  return MissingRanksText(missing, waiting, waited);
}

void RoundStore::OnDeadline(SteadyTime now) {
  if (now < waits_.NextDeadline()) return;
  const std::string text = waits_.OnDeadline(Waits(), now);
  // Ranks that have not joined are reported by MissingText.
  if (!text.empty() && server_->Missing().empty()) events_.on_long_wait(text);
}

std::vector<StoreWait> RoundStore::Waits() const {
  std::vector<StoreWait> waits;
  for (WaitingClient& client : server_->Waiting()) {
    waits.push_back({client.number, client.rank, std::move(client.key), client.on_rank});
  }
  return waits;
}

void RoundStore::SendEvidence(absl::string_view payload) {
  if (registration_ != nullptr) registration_->SendEvidence(payload);
}

void RoundStore::Close() {
  unregistered_ = std::nullopt;
  waits_.EndRound();
  CloseRegistration();
  if (server_ == nullptr) return;
  loop_->RemoveFd(server_->PollFd());
  server_ = nullptr;
}

void RoundStore::CloseRegistration() {
  if (registration_ == nullptr) return;
  loop_->RemoveFd(registration_->PollFd());
  registration_ = nullptr;
}

}  // namespace ddprun::launcher

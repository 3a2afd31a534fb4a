#include "rendezvous/ha/ha_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace ddprun::rendezvous {
namespace {

// Number of attempts per lease: a renewal that one member does not answer must be answered by another in time.
constexpr int kTriesInALease = 6;

}  // namespace

HaServer::HaServer(HaOptions options, Events events)
    : options_(std::move(options)), keys_(options_.prefix), events_(std::move(events)) {}

HaServer::~HaServer() { Stop(); }

absl::StatusOr<std::unique_ptr<HaServer>> HaServer::Start(HaOptions options, Events events) {
  std::unique_ptr<HaServer> server(new HaServer(std::move(options), std::move(events)));
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> client, EtcdClient::Create(server->options_.etcd));
  EtcdOptions impatient = server->options_.etcd;
  impatient.patience = server->options_.lease_ttl / kTriesInALease;
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> lease_client, EtcdClient::Create(impatient));
  server->client_ = std::move(client);
  server->lease_client_ = std::move(lease_client);
  DDPRUN_ASSIGN_OR_RETURN(server->follower_,
                          FollowerServer::Start(server->client_.get(), server->keys_, server->options_.listen,
                                                {.credentials = server->options_.credentials}));
  server->addresses_ = server->follower_->addresses();
  std::string advertise = server->options_.advertise;
  if (advertise.empty()) advertise = server->addresses_.front();
  for (const std::string& member : server->client_->FindSilentMembers()) {
    Log(LogLevel::kWarning, absl::StrCat("a member of etcd does not answer: ", member, "; continuing with the others"));
  }
  Log(LogLevel::kInfo, absl::StrCat("started as a follower; etcd: ", server->client_->Name()));
  HaServer* const raw = server.get();
  MutexLock lock(&raw->mutex_);  // OnLead waits until leadership_ is set
  server->leadership_ = std::make_unique<Leadership>(
      server->lease_client_.get(), server->keys_, Leadership::Settings{advertise, server->options_.lease_ttl},
      Leadership::Events{[raw](int64_t epoch) { raw->OnLead(epoch); },
                         [raw](const std::string& reason) { raw->events_.on_step_down(reason); }});
  return server;
}

void HaServer::OnLead(int64_t epoch) {
  MutexLock lock(&mutex_);
  if (stopping_) return;
  epoch_ = epoch;
  reading_ = true;
  reader_ = std::thread([this] {
    absl::Status status = ReadRecords();
    {
      MutexLock lock(&mutex_);
      reading_ = false;
    }
    events_.on_lead(std::move(status));
  });
}

absl::Status HaServer::ReadRecords() {
  DDPRUN_ASSIGN_OR_RETURN(store_, EtcdStore::Open(client_.get(), keys_,
                                                  EtcdStore::Leader{.epoch = epoch_,
                                                                    .owns = [this] { return leadership_->MayAct(); },
                                                                    .on_fenced = [this] { leadership_->OnFenced(); }}));
  follower_->Shutdown();
  return absl::OkStatus();
}

void HaServer::Stop() {
  std::thread reader;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    if (reading_) client_->Stop();  // etcd may take long to answer
    reader = std::move(reader_);
  }
  if (reader.joinable()) reader.join();
  if (follower_ != nullptr) follower_->Shutdown();
  if (store_ != nullptr) store_->Stop();
  if (leadership_ != nullptr) leadership_->Stop();
}

}  // namespace ddprun::rendezvous

#include "rendezvous/ha/leadership.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace ddprun::rendezvous {
namespace {

// After this number of times to live, the lease of an ended process has expired even if etcd granted more than
// requested.
constexpr int kOldLeaseGone = 3;

constexpr size_t kMostProblems = 5;  // logged until etcd answers
constexpr char kNobodyLeads[] = "No server can lead without etcd";
constexpr char kCannotLead[] = "This server can't lead";

}  // namespace

absl::StatusOr<LeaderView> AskForLeader(EtcdClient* client, const EtcdKeys& keys, SteadyTime deadline) {
  etcdserverpb::TxnRequest txn;
  AddRead(keys.Leader(), &txn);
  AddRead(keys.Epoch(), &txn);
  etcdserverpb::TxnResponse answer;
  DDPRUN_RETURN_IF_ERROR(client->Txn(txn, deadline, &answer));
  if (answer.responses_size() != 2) return absl::InternalError("etcd answered a transaction in part");
  LeaderView view{.revision = answer.header().revision()};
  for (const etcdserverpb::KeyValue& kv : answer.responses(0).response_range().kvs()) view.address = kv.value();
  for (const etcdserverpb::KeyValue& kv : answer.responses(1).response_range().kvs()) view.epoch = kv.mod_revision();
  return view;
}

Leadership::Leadership(EtcdClient* client, EtcdKeys keys, Settings settings, Events events)
    : client_(client),
      keys_(std::move(keys)),
      settings_(std::move(settings)),
      events_(std::move(events)),
      lease_(settings_.ttl) {
  thread_ = std::thread([this] { Run(); });
}

Leadership::~Leadership() { Stop(); }

void Leadership::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    if (observing_) client_->Stop();
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

std::string Leadership::leader() const {
  MutexLock lock(&mutex_);
  return leader_;
}

void Leadership::OnFenced() {
  {
    MutexLock lock(&mutex_);
    fenced_ = true;
  }
  wake_.NotifyAll();
}

void Leadership::Run() {
  LeaderLease::Effects first;
  lease_.Start(SteadyNow(), &first);
  CarryOut(std::move(first));
  while (true) {
    bool stop = false, fenced = false;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && !fenced_ && SteadyNow() < lease_.NextDeadline()) {
        wake_.WaitUntil(&mutex_, lease_.NextDeadline());
      }
      stop = stopping_;
      fenced = std::exchange(fenced_, false);
    }
    LeaderLease::Effects effects;
    if (stop) {
      lease_.Resign(&effects);
    } else if (fenced) {
      lease_.OnFenced(SteadyNow(), &effects);
    } else {
      lease_.OnDeadline(SteadyNow(), &effects);
    }
    CarryOut(std::move(effects));
    if (stop) return;
  }
}

void Leadership::CarryOut(LeaderLease::Effects effects) {
  Publish(&effects);
  while (!effects.empty()) {
    LeaderLease::Effects more;
    for (const LeaseEffect& effect : effects) {
      std::visit([&](const auto& e) { Do(e, &more); }, effect);
    }
    effects = std::move(more);
    Publish(&effects);
  }
}

void Leadership::Publish(LeaderLease::Effects* effects) {
  const SteadyTime until = lease_.valid_until();
  const int64_t ns = until == SteadyTime::InfinitePast() ? INT64_MIN : absl::ToInt64Nanoseconds(until.since_start());
  const int64_t before = valid_until_ns_.exchange(ns);
  // If this process was paused between the answer to a renewal and this line, MayAct may have been false meanwhile.
  const bool lapsed = before != INT64_MIN && before < ns && absl::Nanoseconds(before) <= SteadyNow().since_start();
  if (lapsed) lease_.OnLapsed(effects);
}

void Leadership::LogEtcdChange(const absl::Status& status, absl::string_view consequence,
                               std::set<std::string>* problems) {
  if (absl::IsCancelled(status)) return;
  if (status.ok()) {
    if (!std::exchange(*problems, {}).empty()) Log(LogLevel::kWarning, "etcd answers again");
    return;
  }
  if (problems->size() == kMostProblems || !problems->emplace(status.message()).second) return;
  Log(LogLevel::kError, absl::StrCat(status.message(), ". ", consequence, "; retrying"));
}

void Leadership::NoteLeader(const std::string& leader) {
  if (leader != settings_.advertise) return own_address_alarm_.reset();
  // Until then the lease may be that of this server's previous process.
  if (!own_address_alarm_) own_address_alarm_ = SteadyNow() + kOldLeaseGone * settings_.ttl;
  if (SteadyNow() < *own_address_alarm_) return;
  own_address_alarm_ = SteadyTime::InfiniteFuture();
  Log(LogLevel::kError, absl::StrCat("another server leads at ", leader,
                                     ", which is also this server's address; give each server its own --advertise "
                                     "address, at which launchers reach it"));
}

void Leadership::Do(const lease::Observe&, LeaderLease::Effects* more) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    observing_ = true;
  }
  if (!view_.address.empty()) {
    // If the watch fails, reading says why.
    const SteadyTime until = own_address_alarm_.value_or(SteadyTime::InfiniteFuture());
    client_->AwaitChange(keys_.Leader(), view_.revision, until).IgnoreError();
  }
  const absl::StatusOr<LeaderView> view = AskForLeader(client_, keys_, SteadyNow() + settings_.ttl);
  LogEtcdChange(view.status(), kNobodyLeads, &read_problems_);
  if (view.ok()) NoteLeader(view->address);
  view_ = view.value_or(LeaderView());
  {
    MutexLock lock(&mutex_);
    leader_ = view_.address;
    observing_ = false;
  }
  std::optional<bool> leader;
  if (view.ok()) leader = !view->address.empty();
  lease_.OnObserved(leader, SteadyNow(), more);
}

void Leadership::Do(const lease::Grant&, LeaderLease::Effects* more) {
  etcdserverpb::LeaseGrantResponse answer;
  const absl::Status status = client_->LeaseGrant(settings_.ttl, SteadyNow() + settings_.ttl, &answer);
  if (!status.ok()) LogEtcdChange(status, kCannotLead, &lead_problems_);
  std::optional<LeaderLease::Granted> granted;
  if (status.ok()) granted = LeaderLease::Granted{answer.id(), absl::Seconds(answer.ttl())};
  lease_.OnGranted(granted, SteadyNow(), more);
}

void Leadership::Do(const lease::Campaign& campaign, LeaderLease::Effects* more) {
  etcdserverpb::TxnRequest txn;
  *txn.add_compare() = keys_.LeaderIs(0);
  AddPut(keys_.Leader(), settings_.advertise, &txn, campaign.lease);
  AddPut(keys_.Epoch(), settings_.advertise, &txn);
  etcdserverpb::TxnResponse answer;
  const absl::Status status = client_->Txn(txn, SteadyNow() + settings_.ttl, &answer);
  LeaderLease::Campaigned result = LeaderLease::Campaigned::kNoAnswer;
  if (status.ok()) result = answer.succeeded() ? LeaderLease::Campaigned::kWon : LeaderLease::Campaigned::kLost;
  LogEtcdChange(status, kCannotLead, &lead_problems_);
  lease_.OnCampaign(result, answer.header().revision(), SteadyNow(), more);
}

void Leadership::Do(const lease::Renew& renew, LeaderLease::Effects* more) {
  const absl::Status status = client_->LeaseKeepAlive(renew.lease, renew.until);
  LeaderLease::Renewed result = LeaderLease::Renewed::kNoAnswer;
  if (status.ok()) result = LeaderLease::Renewed::kKept;
  if (absl::IsNotFound(status)) result = LeaderLease::Renewed::kGone;
  lease_.OnRenewed(result, SteadyNow(), more);
}

void Leadership::Do(const lease::Revoke& revoke, LeaderLease::Effects*) {
  client_->LeaseRevoke(revoke.lease, SteadyNow() + settings_.ttl / 3).IgnoreError();
}

void Leadership::Do(const lease::Lead& lead, LeaderLease::Effects*) { events_.on_lead(lead.epoch); }

void Leadership::Do(const lease::StepDown& step_down, LeaderLease::Effects*) { events_.on_step_down(step_down.reason); }

}  // namespace ddprun::rendezvous

#include "rendezvous/state/leadership.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/log.h"

namespace ddprun::rendezvous {

absl::StatusOr<LeaderView> AskForLeader(EtcdClient* client, const EtcdKeys& keys, SteadyTime deadline) {
  etcdserverpb::TxnRequest txn;
  AddRead(keys.Leader(), &txn);
  AddRead(keys.Epoch(), &txn);
  etcdserverpb::TxnResponse answer;
  if (absl::Status status = client->Txn(txn, deadline, &answer); !status.ok()) return status;
  if (answer.responses_size() != 2) return absl::InternalError("etcd answered a transaction in part");
  LeaderView view;
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
  while (!effects.empty()) {
    Publish();
    LeaderLease::Effects more;
    for (const LeaseEffect& effect : effects) {
      std::visit([&](const auto& e) { Do(e, &more); }, effect);
    }
    effects = std::move(more);
  }
  Publish();
}

void Leadership::Publish() {
  const SteadyTime until = lease_.valid_until();
  valid_until_ns_ = until == SteadyTime::InfinitePast() ? INT64_MIN : absl::ToInt64Nanoseconds(until.since_start());
}

void Leadership::NoteAnswer(const absl::Status& status) {
  if (absl::IsCancelled(status)) return;
  const bool answers = status.ok();
  if (answers == std::exchange(etcd_answers_, answers)) return;
  if (answers) return Log(LogLevel::kWarning, "etcd answers again");
  Log(LogLevel::kError, absl::StrCat(status.message(), "; no server can lead without etcd; retrying"));
}

void Leadership::Do(const lease::Observe&, LeaderLease::Effects* more) {
  const absl::StatusOr<LeaderView> view = AskForLeader(client_, keys_, SteadyNow() + settings_.ttl);
  NoteAnswer(view.status());
  std::optional<bool> leader;
  if (view.ok()) leader = !view->address.empty();
  {
    MutexLock lock(&mutex_);
    leader_ = view.ok() ? view->address : "";
  }
  lease_.OnObserved(leader, SteadyNow(), more);
}

void Leadership::Do(const lease::Grant&, LeaderLease::Effects* more) {
  etcdserverpb::LeaseGrantResponse answer;
  const absl::Status status = client_->LeaseGrant(settings_.ttl, SteadyNow() + settings_.ttl, &answer);
  if (!status.ok()) Log(LogLevel::kWarning, absl::StrCat("can't get a lease from etcd: ", status.message()));
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
  if (!status.ok()) Log(LogLevel::kWarning, absl::StrCat("can't write the leader's key to etcd: ", status.message()));
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

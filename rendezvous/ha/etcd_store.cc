#include "rendezvous/ha/etcd_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "proto/state.pb.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::Duration kLoadPatience = absl::Seconds(30);
constexpr absl::Duration kLoadPause = absl::Milliseconds(100);
constexpr absl::Duration kWritePatience = absl::Seconds(5);
constexpr int kJobsAtOnce = 100;  // per page read

// True if etcd's own request limit was exceeded, or the slightly higher one of its gRPC server.
bool IsTooLarge(const absl::Status& status) {
  return (absl::IsInvalidArgument(status) && absl::StrContains(status.message(), "request is too large")) ||
         (absl::IsResourceExhausted(status) && absl::StrContains(status.message(), "larger than max"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdStore>> EtcdStore::Open(EtcdClient* client, EtcdKeys keys, Leader leader) {
  std::unique_ptr<EtcdStore> store(new EtcdStore(client, std::move(keys), std::move(leader)));
  DDPRUN_RETURN_IF_ERROR(store->Load());
  store->queue_.Start(
      [raw = store.get()](Batch batch, SteadyTime taken) { return raw->Write(std::move(batch), taken); });
  return store;
}

absl::Status EtcdStore::RetryWhileUnavailable(absl::FunctionRef<absl::Status()> attempt) {
  // gRPC does not retry a failed connection at once. Calls fail meanwhile, even if etcd has answered another client of
  // this server since.
  const SteadyTime end = SteadyNow() + kLoadPatience;
  while (true) {
    const absl::Status status = attempt();
    if (!absl::IsUnavailable(status) || SteadyNow() >= end || !queue_.WaitFor(kLoadPause)) return status;
  }
}

absl::Status EtcdStore::Load() {
  etcdserverpb::TxnRequest txn;
  *txn.add_compare() = keys_.LeaderIs(leader_.epoch);
  AddRead(keys_.Forgotten(), &txn);
  AddRead(keys_.Life(), &txn);
  AddRead(keys_.Epoch(), &txn);
  etcdserverpb::TxnResponse answer;
  DDPRUN_RETURN_IF_ERROR(
      RetryWhileUnavailable([&] { return client_->Txn(txn, SteadyNow() + kLoadPatience, &answer); }));
  if (!answer.succeeded() || answer.responses_size() != 3) {
    return absl::FailedPreconditionError("another server has become the leader");
  }
  int64_t life_ms = 0;
  for (const etcdserverpb::KeyValue& kv : answer.responses(0).response_range().kvs()) {
    if (!absl::SimpleAtoi(kv.value(), &forgotten_round_)) return absl::DataLossError(keys_.Forgotten());
  }
  for (const etcdserverpb::KeyValue& kv : answer.responses(1).response_range().kvs()) {
    if (!absl::SimpleAtoi(kv.value(), &life_ms)) return absl::DataLossError(keys_.Life());
    writes_ = kv.version();
  }
  for (const etcdserverpb::KeyValue& kv : answer.responses(2).response_range().kvs()) {
    saved_.earlier_servers = static_cast<uint64_t>(std::max<int64_t>(kv.version() - 1, 0));
  }
  longest_life_ = absl::Milliseconds(life_ms);
  saved_.forgotten_round = forgotten_round_;
  saved_.longest_life = longest_life_;
  // No other server can write from here on, so all pages show the same state.
  return LoadJobs(answer.header().revision());
}

absl::Status EtcdStore::LoadJobs(int64_t revision) {
  std::map<uint64_t, JobRecord> ended;
  std::vector<JobRecord> live;
  std::vector<std::pair<etcdserverpb::KeyValue, absl::Status>> damaged;
  etcdserverpb::RangeRequest request;
  request.set_key(keys_.Jobs());
  request.set_range_end(keys_.JobsEnd());
  request.set_limit(kJobsAtOnce);
  request.set_revision(revision);
  for (bool more = true; more;) {
    etcdserverpb::RangeResponse page;
    DDPRUN_RETURN_IF_ERROR(
        RetryWhileUnavailable([&] { return client_->Range(request, SteadyNow() + kLoadPatience, &page); }));
    for (const etcdserverpb::KeyValue& kv : page.kvs()) {
      request.set_key(absl::StrCat(kv.key(), absl::string_view("\0", 1)));  // start of the next page
      v1::StoredRecord stored;
      absl::StatusOr<JobRecord> record = stored.ParseFromString(kv.value()) ? RecordFromBytes(stored.record())
                                                                            : absl::DataLossError("it can't be parsed");
      if (!record.ok()) {
        damaged.emplace_back(kv, record.status());
        continue;
      }
      // The wall clock suffices, because the age is not used for safety.
      AddAge(absl::Now() - absl::FromUnixMillis(stored.saved_at_ms()), &*record);
      if (stored.ended() == 0) {
        live.push_back(*std::move(record));
      } else {
        ended_[stored.ended()] =
            Ended{record->job_id(), record->highest_round(), static_cast<size_t>(record->told_size())};
        ended_at_[record->job_id()] = stored.ended();
        ended_nodes_ += static_cast<size_t>(record->told_size());
        ended[stored.ended()] = *std::move(record);
      }
    }
    more = page.more() && page.kvs_size() > 0;
  }
  if (!ended_.empty()) last_ended_ = ended_.rbegin()->first;
  for (auto& [order, record] : ended) saved_.jobs.push_back(std::move(record));
  for (JobRecord& record : live) saved_.jobs.push_back(std::move(record));
  for (const auto& [kv, problem] : damaged) DDPRUN_RETURN_IF_ERROR(SetAside(kv, problem));
  return absl::OkStatus();
}

absl::Status EtcdStore::SetAside(const etcdserverpb::KeyValue& record, const absl::Status& problem) {
  const std::string job_id = record.key().substr(keys_.Jobs().size());
  // The records found no longer prove that no others were persisted.
  longest_life_ = saved_.longest_life = absl::ZeroDuration();
  etcdserverpb::TxnRequest txn = NewTxn();
  AddPut(keys_.Damaged(job_id), record.value(), &txn);
  AddDelete(keys_.Job(job_id), &txn);
  AddPut(keys_.Life(), "0", &txn);
  const absl::Status status = RetryWhileUnavailable([&] { return Commit(txn); });
  if (!status.ok() && !IsTooLarge(status)) return status;
  Log(LogLevel::kError, DescribeSetAside(job_id, problem, status.ok() ? keys_.Damaged(job_id) : keys_.Job(job_id)));
  return absl::OkStatus();
}

bool EtcdStore::Write(Batch batch, SteadyTime taken) {
  std::vector<Encoded> some;  // records of one transaction
  size_t some_bytes = 0;
  for (RecordQueue::Item& item : batch) {
    std::string bytes = ToBytes(*item.record);
    if (!some.empty() && (some.size() == kMaxRecordsAtOnce || some_bytes + bytes.size() > kMaxBytesAtOnce)) {
      if (!WriteSome(std::exchange(some, {}), taken)) return false;
      some_bytes = 0;
    }
    some_bytes += bytes.size();
    some.push_back(Encoded{std::move(item), std::move(bytes)});
  }
  return some.empty() || WriteSome(std::move(some), taken);
}

bool EtcdStore::WriteSome(std::vector<Encoded> records, SteadyTime taken) {
  const etcdserverpb::TxnRequest txn = MakeTxn(records, taken);
  bool too_large = false;
  const bool over = queue_.Try([&] {
    const absl::Status status = Commit(txn);
    too_large = IsTooLarge(status);
    return too_large ? absl::OkStatus() : status;
  });
  if (!over) return false;
  if (!too_large) {
    forgotten_.clear();
    CallSafe(records);
    return true;
  }
  if (records.size() == 1) {
    std::string shorter = ToBytes(Shortened(*records[0].item.record));
    if (shorter.size() < records[0].bytes.size()) {
      records[0].bytes = std::move(shorter);
      return WriteSome(std::move(records), taken);
    }
    OnTooLarge(std::move(records[0]));
    return true;
  }
  for (Encoded& record : records) {
    std::vector<Encoded> one;
    one.push_back(std::move(record));
    if (!WriteSome(std::move(one), taken)) return false;
  }
  return true;
}

void EtcdStore::CallSafe(const std::vector<Encoded>& records) {
  for (const auto& [item, bytes] : records) {
    if (const auto waiting = too_large_.find(item.record->job_id()); waiting != too_large_.end()) {
      Log(LogLevel::kWarning, absl::StrCat("job ", item.record->job_id(), " can be persisted in etcd again"));
      report_job_(item.record->job_id(), "");
      for (const std::function<void()>& safe : waiting->second) safe();
      too_large_.erase(waiting);
    }
    item.safe();
  }
}

void EtcdStore::OnTooLarge(Encoded record) {
  const std::string& job_id = record.item.record->job_id();
  const std::string trouble = absl::StrCat("can't persist this job in etcd: its record of ", record.bytes.size(),
                                           " bytes is too large; raise etcd's --max-request-bytes, or use fewer nodes");
  std::vector<std::function<void()>>& waiting = too_large_[job_id];
  if (waiting.empty()) Log(LogLevel::kError, absl::StrCat("job ", job_id, ": ", trouble, ". It waits; others proceed"));
  waiting.push_back(std::move(record.item.safe));
  report_job_(job_id, trouble);
}

etcdserverpb::TxnRequest EtcdStore::NewTxn() const {
  etcdserverpb::TxnRequest txn;
  *txn.add_compare() = keys_.LeaderIs(leader_.epoch);
  *txn.add_compare() = keys_.WrittenTimes(writes_);
  AddReadOnFailure(keys_.Leader(), &txn);
  AddReadOnFailure(keys_.Life(), &txn);
  return txn;
}

etcdserverpb::TxnRequest EtcdStore::MakeTxn(const std::vector<Encoded>& records, SteadyTime taken) {
  etcdserverpb::TxnRequest txn = NewTxn();
  std::map<std::string, const JobRecord*> newest;  // etcd refuses a transaction that puts one key twice
  for (const auto& [item, bytes] : records) newest[item.record->job_id()] = item.record.get();
  for (const auto& [item, bytes] : records) {
    if (newest[item.record->job_id()] == item.record.get()) AddRecord(*item.record, bytes, &txn);
  }
  ForgetOldest(&txn);
  longest_life_ = std::max(longest_life_, taken - opened_);
  AddPut(keys_.Life(), absl::StrCat(absl::ToInt64Milliseconds(longest_life_)), &txn);
  return txn;
}

void EtcdStore::AddRecord(const JobRecord& record, const std::string& bytes, etcdserverpb::TxnRequest* txn) {
  std::erase(forgotten_, record.job_id());
  if (const auto at = ended_at_.find(record.job_id()); at != ended_at_.end()) {
    ended_nodes_ -= ended_[at->second].nodes;
    ended_.erase(at->second);
    ended_at_.erase(at);
  }
  v1::StoredRecord stored;
  stored.set_saved_at_ms(absl::ToUnixMillis(absl::Now()));
  stored.set_record(bytes);
  if (record.has_verdict()) {
    stored.set_ended(++last_ended_);
    ended_[last_ended_] = Ended{record.job_id(), record.highest_round(), static_cast<size_t>(record.told_size())};
    ended_at_[record.job_id()] = last_ended_;
    ended_nodes_ += static_cast<size_t>(record.told_size());
  }
  AddPut(keys_.Job(record.job_id()), stored.SerializeAsString(), txn);
}

void EtcdStore::ForgetOldest(etcdserverpb::TxnRequest* txn) {
  // Keep those of this transaction, which may not put and delete the same key.
  while (forgotten_.size() < kMaxRecordsAtOnce && ended_.size() > kMaxRecordsAtOnce) {
    if (ended_.size() <= EndedJobs::kMaxJobs && ended_nodes_ <= EndedJobs::kMaxNodes) break;
    const auto oldest = ended_.begin();
    forgotten_round_ = std::max(forgotten_round_, oldest->second.highest_round);
    forgotten_.push_back(oldest->second.job_id);
    ended_nodes_ -= oldest->second.nodes;
    ended_at_.erase(oldest->second.job_id);
    ended_.erase(oldest);
  }
  for (const std::string& job_id : forgotten_) AddDelete(keys_.Job(job_id), txn);
  if (!forgotten_.empty()) AddPut(keys_.Forgotten(), absl::StrCat(forgotten_round_), txn);
}

absl::Status EtcdStore::Commit(const etcdserverpb::TxnRequest& txn) {
  etcdserverpb::TxnResponse answer;
  DDPRUN_RETURN_IF_ERROR(client_->Txn(txn, SteadyNow() + kWritePatience, &answer));
  if (answer.succeeded() || WasApplied(answer)) {
    ++writes_;
    return absl::OkStatus();
  }
  leader_.on_fenced();
  return absl::CancelledError("another server leads");
}

bool EtcdStore::WasApplied(const etcdserverpb::TxnResponse& refusal) const {
  if (refusal.responses_size() != 2) return false;
  bool leads = false, written = false;
  for (const etcdserverpb::KeyValue& kv : refusal.responses(0).response_range().kvs()) {
    leads = kv.create_revision() == leader_.epoch;
  }
  for (const etcdserverpb::KeyValue& kv : refusal.responses(1).response_range().kvs()) {
    written = kv.version() == writes_ + 1;
  }
  return leads && written;
}

}  // namespace ddprun::rendezvous

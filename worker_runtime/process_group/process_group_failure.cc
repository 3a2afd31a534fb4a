#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/process_group/meeting.h"
#include "worker_runtime/process_group/process_group_impl.h"
#include "worker_runtime/process_group/tcp_sockets.h"

// Failure and end of a process group.
namespace ddprun {
namespace {

using Kind = FailureReport::Kind;

// Prefix of the error of an aborted group; the reason follows.
constexpr absl::string_view kAborted = "aborted: ";

// How long a rank that gave up waits for the reports of ranks in the same operation, which are woken first.
constexpr absl::Duration kReportWait = absl::Seconds(1);

// How long an abort of NCCL is waited for. It takes milliseconds, unless the driver or the network hangs.
constexpr absl::Duration kAbortWait = absl::Seconds(5);

// Complete text of c10d's error when Work::wait times out. Other timeouts have longer texts, such as a data loader's
// "Operation timed out after 5 s".
constexpr absl::string_view kWorkTimedOut = "Operation timed out!";

FailureReport AbortReport(absl::string_view reason) {
  return {.kind = Kind::kAborted, .operation = "Abort", .detail = std::string(reason)};
}

// True if the exception came from a collective's connections, not from the trainer's code.
bool IsConnectionError(const absl::Status& thrown) {
  if (!absl::IsUnavailable(thrown) && !absl::IsDeadlineExceeded(thrown)) return false;
  return absl::StrContains(thrown.message(), "gloo/") || absl::StrContains(thrown.message(), "NCCL") ||
         absl::StrContains(thrown.message(), "nccl") || thrown.message() == kWorkTimedOut ||
         // TORCH_DISTRIBUTED_DEBUG=DETAIL: ends a collective before it begins.
         absl::StrContains(thrown.message(), "monitoredBarrier");
}

// "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Read error [10.0.0.7]:24501: Connection reset by peer"
// without the source file and the address, whose port is printed wrong.
std::string StripSourceAndAddress(absl::string_view text) {
  const size_t end = text.find("] ");
  if (absl::StartsWith(text, "[") && end != absl::string_view::npos) text.remove_prefix(end + 2);
  const size_t open = text.rfind(" ["), close = text.rfind("]:");
  if (open == absl::string_view::npos || close == absl::string_view::npos || open > close) return std::string(text);
  const size_t after = text.find_first_not_of("0123456789", close + 2);
  return absl::StrCat(text.substr(0, open), after == absl::string_view::npos ? "" : text.substr(after));
}

}  // namespace

absl::Status ProcessGroup::Impl::Usable(absl::string_view operation) {
  MutexLock lock(&mutex_);
  if (!failed_.ok()) {
    if (absl::IsAborted(failed_)) {
      return absl::AbortedError(absl::StrCat(error_prefix, "rank ", rank, ": ", operation, ": ", failed_.message()));
    }
    return absl::Status(failed_.code(), absl::StrCat(error_prefix, "rank ", rank, ": ", operation,
                                                     ": the group failed earlier: ", failed_.message()));
  }
  if (!released_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(error_prefix, "rank ", rank, ": ", operation, ": the group was shut down"));
}

uint64_t ProcessGroup::Impl::Sequence() {
  uint64_t sequence = 0;
  TorchTry("", [&] {
    sequence = group->getDefaultBackend()->getSequenceNumberForGroup();
    return absl::OkStatus();
  }).IgnoreError();
  return sequence;
}

FailureReport ProcessGroup::Impl::Describe(absl::string_view operation, const absl::Status& thrown) {
  const std::string text(thrown.message());
  FailureReport report{.kind = absl::IsDeadlineExceeded(thrown) ? Kind::kTimeout : Kind::kLost,
                       .operation = std::string(operation),
                       .sequence = Sequence(),
                       .detail = StripSourceAndAddress(text)};
  if (report.kind == Kind::kTimeout) return report;
  const std::vector<std::string> addresses = AddressesInText(text);
  for (const std::string& address : addresses) {
    if (!report.lost.has_value()) report.lost = peers.RankListeningAt(address);
  }
  if (!report.lost.has_value() && !addresses.empty()) {
    board->Ask([&](c10d::Store& store) { report.lost = RankOfPort(store, peers, addresses); });
  }
  return report;
}

absl::Status ProcessGroup::Impl::Try(absl::string_view operation, absl::Duration timeout,
                                     absl::FunctionRef<absl::Status()> body) {
  if (absl::Status status = Usable(operation); !status.ok()) return status;
  absl::Status returned;
  const absl::Status thrown = TorchTry("", [&] {
    returned = body();
    return absl::OkStatus();
  });
  if (!thrown.ok()) return Explain(operation, thrown, timeout);
  if (!returned.ok()) return returned;
  // An operation on a GPU that was interrupted by an abort returns without an error. FailedPrecondition is no error:
  // `body` may have shut the group down.
  const absl::Status usable = Usable(operation);
  if (!usable.ok() && !absl::IsFailedPrecondition(usable)) return usable;
  return NcclHealth(operation, timeout);
}

absl::Status ProcessGroup::Impl::NcclHealth(absl::string_view operation, absl::Duration timeout) {
  c10::intrusive_ptr<c10d::Backend> running;
  {
    MutexLock lock(&mutex_);
    running = nccl;
  }
  if (running == nullptr) return absl::OkStatus();
  c10d::ErrorType error = c10d::ErrorType::SUCCESS;
  const absl::Status thrown = TorchTry("", [&] {
    error = running->getError();
    return absl::OkStatus();
  });
  if (!thrown.ok()) return Explain(operation, thrown, timeout);
  switch (error) {
    case c10d::ErrorType::SUCCESS: return absl::OkStatus();
    case c10d::ErrorType::TIMEOUT:
      return Explain(operation, absl::DeadlineExceededError("NCCL timed out in an earlier collective"), timeout);
    case c10d::ErrorType::REMOTE_ERROR:
      return Explain(operation, absl::UnavailableError("NCCL failed on another rank"), timeout);
    case c10d::ErrorType::COMM_ERROR: break;
  }
  return Explain(operation, absl::UnavailableError("NCCL failed in an earlier collective"), timeout);
}

absl::Status ProcessGroup::Impl::Explain(absl::string_view operation, const absl::Status& thrown,
                                         absl::Duration timeout) {
  if (absl::Status status = Usable(operation); !status.ok()) return status;
  if (!IsConnectionError(thrown)) {
    return absl::Status(thrown.code(),
                        absl::StrCat(error_prefix, "rank ", rank, ": ", operation, ": ", thrown.message()));
  }
  FailureReport own = Describe(operation, thrown);
  board->Post(own);
  BackgroundCalls aborting;
  CutOff(aborting);
  const auto wait = absl::MakeCleanup([&aborting] { aborting.Wait(kAbortWait); });
  FailureReports reports = board->Read();
  // Gloo closes its connections before the rank that gave up can post its report. A rank that posts none is gone.
  const FailureCause first = FindCause(rank, own, reports);
  if (options.await_failure_reports && first.rank.has_value() && !first.reported.has_value()) {
    board->Await(*first.rank, kReportWait);
    reports = board->Read();
  }
  // Ranks give up at different times: without a wait, healthy ranks would be reported as missing from the collective.
  // NCCL does not tell which connection broke: ranks without a report are suspected.
  const FailureCause so_far = FindCause(rank, own, reports);
  if (IsTimeout(so_far) || (options.await_failure_reports && !so_far.rank.has_value())) {
    board->AwaitAll(kReportWait);
    reports = board->Read();
  }
  if (board->store_is_lost()) {
    absl::StrAppend(&own.detail, "; the store is not reachable either");
    if (store_on_rank_0 && rank != 0) own.lost = 0;
  }
  absl::Status status = ExplainFailure(peers, rank, timeout, own, reports);
  status = absl::Status(status.code(), absl::StrCat(error_prefix, status.message()));
  board->AnnounceRead();
  MutexLock lock(&mutex_);
  const FailureCause cause = FindCause(rank, own, reports);
  for (int other = 0; other < size; ++other) {
    const bool silent = !reports.contains(other) && other != rank;
    if (silent && (IsTimeout(cause) || !cause.rank.has_value() || cause.rank == other)) gone_.insert(other);
  }
  if (!failed_.ok())
    return absl::Status(failed_.code(),
                        absl::StrCat(error_prefix, "rank ", rank, ": ", operation, ": ", failed_.message()));
  failed_ = status;
  return status;
}

void ProcessGroup::Impl::CutOff(BackgroundCalls& aborting) {
  aborted_.request_stop();
  c10::intrusive_ptr<c10d::Backend> running;
  {
    MutexLock lock(&mutex_);
    if (released_) return;
    if (gloo != nullptr) gloo->CutOff();
    running = nccl;
  }
  if (running == nullptr) return;
  aborting.Start([running] {
    TorchTry("", [&] {
      running->abort();
      return absl::OkStatus();
    }).IgnoreError();
  });
}

std::vector<std::shared_ptr<FailureBoard>> ProcessGroup::Impl::AbortAll(absl::string_view reason,
                                                                        BackgroundCalls& aborting) {
  std::vector<std::shared_ptr<FailureBoard>> boards;
  {
    MutexLock lock(&mutex_);
    if (released_) return boards;
    if (!absl::IsAborted(failed_)) failed_ = absl::AbortedError(absl::StrCat(kAborted, reason));
    if (board != nullptr) boards.push_back(board);
  }
  CutOff(aborting);
  for (const std::shared_ptr<ProcessGroup>& subgroup : Subgroups()) {
    for (std::shared_ptr<FailureBoard>& other : subgroup->impl_->AbortAll(reason, aborting)) boards.push_back(other);
  }
  return boards;
}

void ProcessGroup::Impl::Abort(absl::string_view reason) {
  // The report is posted last, as the store may be unreachable. Ranks that see the connections close wait briefly for
  // it.
  BackgroundCalls aborting;
  for (const std::shared_ptr<FailureBoard>& each : AbortAll(reason, aborting)) each->Post(AbortReport(reason));
  aborting.Wait(kAbortWait);
}

void ProcessGroup::Impl::AwaitReaders() {
  if (!store_on_rank_0 || board == nullptr) return;
  board->AnnounceRead();
  if (rank != 0) return;
  std::set<int> gone;
  {
    MutexLock lock(&mutex_);
    gone = gone_;
  }
  board->AwaitReaders(gone, kReportWait);
}

void ProcessGroup::Impl::Leave() {
  FailureReport report{.kind = Kind::kLeft, .operation = "no operation"};
  {
    MutexLock lock(&mutex_);
    if (released_) return;
    // The aborting thread may not have posted its report yet; if it has, this one is ignored.
    if (absl::IsAborted(failed_)) report = AbortReport(absl::StripPrefix(failed_.message(), kAborted));
  }
  BackgroundCalls aborting;
  CutOff(aborting);
  std::vector<std::shared_ptr<FailureBoard>> boards;
  for (const std::shared_ptr<ProcessGroup>& subgroup : Subgroups()) {
    for (auto& each : subgroup->impl_->AbortAll("its parent group was destroyed", aborting)) boards.push_back(each);
  }
  if (size > 1 && board != nullptr) board->Post(report);
  for (const std::shared_ptr<FailureBoard>& each : boards) each->Post(AbortReport("its parent group was destroyed"));
  aborting.Wait(kAbortWait);
  Release(/*healthy=*/false).IgnoreError();
}

absl::Status ProcessGroup::Impl::Release(bool healthy) {
  std::unique_ptr<GlooBackend> old_gloo;
  c10::intrusive_ptr<c10d::Backend> old_nccl;
  c10::intrusive_ptr<c10d::ProcessGroup> old_group;
  {
    MutexLock lock(&mutex_);
    released_ = true;
    old_gloo = std::move(gloo);
    old_nccl = std::move(nccl);
    old_group = std::move(group);
  }
  if (old_nccl == nullptr || !healthy) return absl::OkStatus();
  return TorchTry(absl::StrCat(error_prefix, "rank ", rank, ": shutdown of NCCL"), [&] {
    old_nccl->shutdown();
    return absl::OkStatus();
  });
}

absl::Status ProcessGroup::Impl::AddSubgroup(const std::shared_ptr<ProcessGroup>& subgroup) {
  absl::Status failed;
  {
    MutexLock lock(&mutex_);
    std::erase_if(subgroups_, [](const std::weak_ptr<ProcessGroup>& old) { return old.expired(); });
    subgroups_.push_back(subgroup);
    failed = failed_;
  }
  if (!failed.ok()) subgroup->Abort(failed.message());
  return failed;
}

std::vector<std::shared_ptr<ProcessGroup>> ProcessGroup::Impl::Subgroups() {
  std::vector<std::shared_ptr<ProcessGroup>> alive;
  MutexLock lock(&mutex_);
  for (const std::weak_ptr<ProcessGroup>& subgroup : subgroups_) {
    if (std::shared_ptr<ProcessGroup> group = subgroup.lock()) alive.push_back(std::move(group));
  }
  return alive;
}

}  // namespace ddprun

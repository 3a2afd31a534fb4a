#include "launcher/machine/wait_reports.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/endpoint.h"
#include "launcher/report/wait_text.h"

namespace ddprun::launcher {
namespace {

// Time until the first line about a wait, and the interval between further lines.
constexpr absl::Duration kFirstReport = absl::Seconds(10);
constexpr absl::Duration kNextReports = absl::Minutes(1);
// Minimum time between the first rank's connection and a report of missing ranks.
constexpr absl::Duration kJoinSpread = absl::Seconds(3);
// A store on another node is unreachable if it accepts no connection within this time.
constexpr absl::Duration kStoreTimeout = absl::Seconds(5);
// A store that refuses connections may belong to a round that has just ended, with the notification still in transit.
constexpr absl::Duration kStoreRefusalWait = absl::Seconds(1);

}  // namespace

void WaitReports::StartWait(SteadyTime now) {
  waiting_.reset();
  next_report_.Set(now + kFirstReport);
}

void WaitReports::OnWaiting(const rendezvous::Waiting& waiting, SteadyTime now) {
  waiting_ = waiting;
  waiting_at_ = now;
}

std::string WaitReports::WaitText(SteadyTime now) const {
  if (waiting_) {
    rendezvous::Waiting waiting = *waiting_;
    *waiting.mutable_remaining() =
        FromDuration(std::max(absl::ZeroDuration(), ToDuration(waiting.remaining()) - (now - waiting_at_)));
    return absl::StrCat(WaitingText(waiting, names_.expected_hosts), serving_.empty() ? "" : "; ", serving_);
  }
  if (!line_->up()) {
    const std::string& error = line_->last_error();
    const bool silent = absl::EndsWith(error, "no answer");
    return absl::StrCat("waiting for the rendezvous server at ", names_.server,
                        error.empty() ? "" : absl::StrCat("; ", names_.self, ": ", error),
                        silent ? ": a firewall, or another program there, such as torchrun?" : "");
  }
  return absl::StrCat("waiting for the other nodes of job ", names_.job_id);
}

std::vector<std::string> WaitReports::Absent() const {
  return waiting_ ? AbsentHosts(*waiting_, names_.expected_hosts) : std::vector<std::string>();
}

void WaitReports::ReportFailedWait(AgentEffects* effects) const {
  if (!waiting_ || waiting_->spare()) return;
  // The server knows which nodes joined; this launcher knows which were expected, and the address at which it serves.
  const std::vector<std::string> absent = Absent();
  if (!absent.empty()) {
    effects->push_back(effect::Print{LogLevel::kError, absl::StrCat("timed out waiting for ", HostsText(absent))});
  }
  if (!serving_.empty()) effects->push_back(effect::Print{LogLevel::kWarning, serving_});
}

void WaitReports::StartRound(const rendezvous::Assignment& assignment, SteadyTime now) {
  waiting_.reset();
  next_report_.Clear();
  round_ = assignment;
  round_started_ = now;
  ranks_joined_ = 0;
}

void WaitReports::OnRanksJoined(int joined, SteadyTime now) {
  if (joined == ranks_joined_) return;
  const bool first = ranks_joined_ == 0;
  ranks_joined_ = joined;
  if (joined >= round_.world_size()) {
    missing_.Clear();
  } else if (first) {
    missing_.Set(std::max(round_started_ + kFirstReport, now + kJoinSpread));
  }
}

void WaitReports::OnRegistering(SteadyTime now) {
  store_problem_ = absl::StrCat("no answer for ", absl::FormatDuration(kStoreTimeout));
  store_late_.Set(now + kStoreTimeout);
}

void WaitReports::OnStoreReached(const absl::Status& status, SteadyTime now) {
  if (store_problem_.empty()) return;
  if (status.ok()) return store_late_.Clear();
  store_late_.Set(std::min(store_late_.at(), now + kStoreRefusalWait));
  store_problem_ = std::string(status.message());
}

void WaitReports::EndRound() {
  missing_.Clear();
  store_late_.Clear();
  store_problem_.clear();
}

void WaitReports::Clear() {
  EndRound();
  next_report_.Clear();
}

std::string WaitReports::StoreText() const {
  const std::string master = round_.master_host().empty() ? "node 0" : round_.master_host();
  return absl::StrCat(
      names_.self, " can't reach the store of round ", round_.round(), " at ",
      Endpoint{round_.master_addr(), round_.master_port()}.ToString(), " on ", master, ": ", store_problem_,
      "; its workers can't either: set --local-addr on ", master,
      " to an address that the others reach, or open that port (--port-range keeps all ports within a range)");
}

void WaitReports::OnDeadline(SteadyTime now, AgentEffects* effects) {
  if (store_late_.Take(now)) {
    effects->push_back(effect::Print{LogLevel::kWarning, StoreText()});
    store_problem_.clear();
  }
  if (missing_.Take(now)) {
    missing_.Set(now + kNextReports);
    effects->push_back(effect::ReportMissingRanks{});
  }
  if (next_report_.Take(now)) {
    next_report_.Set(now + kNextReports);
    if (!(waiting_ && waiting_->spare())) effects->push_back(effect::Print{LogLevel::kWarning, WaitText(now)});
  }
}

SteadyTime WaitReports::NextDeadline() const { return std::min({next_report_.at(), missing_.at(), store_late_.at()}); }

}  // namespace ddprun::launcher

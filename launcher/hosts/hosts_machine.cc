#include "launcher/hosts/hosts_machine.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/endpoint.h"
#include "base/text.h"
#include "launcher/report/failure_summary.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

using hosts::v1::HostCommand;
using hosts::v1::HostReport;

constexpr absl::Duration kPingInterval = absl::Seconds(5);
constexpr absl::Duration kStuck = absl::Seconds(60);  // without a report while one is expected
constexpr absl::Duration kRetry = absl::Seconds(2);
constexpr absl::Duration kAllLost = absl::Minutes(2);  // longer than a lease
constexpr size_t kMaxReasonBytes = 1000;

}  // namespace

HostsMachine::HostsMachine(HostsPlan plan, HostsShell* shell, SteadyTime now)
    : plan_(std::move(plan)), shell_(shell), now_(now), next_ping_(now + kPingInterval) {
  for (const HostSpec& spec : plan_.hosts) {
    hosts_.emplace_back().spec = spec;
    hosts_.back().heard = now;
  }
}

void HostsMachine::Start() {
  for (size_t i = 0; i < hosts_.size(); ++i) shell_->Connect(i);
}

int HostsMachine::Count(State state) const {
  return static_cast<int>(std::count_if(hosts_.begin(), hosts_.end(), [&](const Host& h) { return h.state == state; }));
}

bool HostsMachine::IsAway(const Host& host) {
  return host.launched && (host.state == State::kLost || host.state == State::kConnecting);
}

// A launcher that has ended says that the job is over, or that this node left it.
bool HostsMachine::MayConnectAgain() const { return signals_ == 0 && (plan_.detach || Count(State::kEnded) == 0); }

void HostsMachine::Print(LogLevel level, const Host& host, const std::string& text) {
  shell_->Print(level, absl::StrCat(host.spec.name, ": ", OneLine(text, kMaxReasonBytes)));
}

std::vector<size_t> HostsMachine::TakingPart() const {
  std::vector<size_t> all;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].state != State::kGone) all.push_back(i);
  }
  return all;
}

std::vector<HostReading> HostsMachine::Readings() const {
  std::vector<HostReading> readings;
  for (const size_t i : TakingPart()) readings.push_back(hosts_[i].reading);
  return readings;
}

void HostsMachine::OnConnected(size_t index, SteadyTime now) {
  now_ = now;
  Host& host = hosts_[index];
  if (host.state != State::kConnecting) return;
  host.heard = host.asked = now_;
  host.prepares = true;
  HostCommand command;
  *command.mutable_prepare() = plan_.prepare;
  command.mutable_prepare()->set_job(plan_.folders[index]);
  for (const int64_t position : host.positions) command.mutable_prepare()->add_positions(position);
  shell_->Send(index, command);
}

void HostsMachine::OnReport(size_t index, const HostReport& report, SteadyTime now, absl::Time wall_time) {
  now_ = now;
  Host& host = hosts_[index];
  if (host.state == State::kGone || host.state == State::kLost || host.state == State::kEnded) return;
  host.heard = now_;
  switch (report.kind_case()) {
    case HostReport::kFacts:
      host.reading.name = host.spec.name;
      host.reading.facts = report.facts();
      host.reading.clock_ahead = absl::FromUnixNanos(report.facts().clock_nanos()) - wall_time;
      host.reading.clock_error = now_ - host.asked;
      if (host.launched) return StartAgain(index);
      host.state = State::kReady;
      return Proceed();
    case HostReport::kListening: return AskToReach(report.listening());
    case HostReport::kReached:
      host.reading.errors.assign(report.reached().errors().begin(), report.reached().errors().end());
      host.state = State::kReady;
      return ChooseAddress();
    case HostReport::kFollowing: return OnFollowing(index, report.following().folder());
    case HostReport::kOutput: {
      const HostReport::Output& output = report.output();
      host.positions[output.is_stderr()] = output.position();
      const std::string lost =
          absl::StrCat(output.lost() >> 20, " MiB of output are missing: newer output is in their place");
      if (output.lost() > 0) Print(LogLevel::kWarning, host, lost);
      return shell_->ShowOutput(index, output.is_stderr(), output.data());
    }
    case HostReport::kEnded:
      EndOutput(index);
      host.state = State::kEnded;
      host.code = report.ended().code();
      if (report.ended().has_failure()) host.failure = report.ended().failure();
      return CheckEnd();
    case HostReport::kFailed:
      if (host.state == State::kStarting) return Fail(index, report.failed().reason());
      return Lose(index, report.failed().reason());
    case HostReport::kAlive:
    case HostReport::KIND_NOT_SET: return;
  }
}

void HostsMachine::OnFollowing(size_t index, const std::string& folder) {
  Host& host = hosts_[index];
  if (IsAway(host)) Print(LogLevel::kWarning, host, "connected again; its launcher has continued");
  host.complaint.clear();
  host.launched = host.has_launcher = true;
  host.folder = folder;
  host.state = plan_.detach ? State::kEnded : State::kRunning;
  all_lost_until_ = SteadyTime::InfiniteFuture();
  if (plan_.detach) return CheckEnd();
  if (holds_output_[false] || holds_output_[true]) Ping();
  if (plan_.follows() && !started_) Proceed();
}

void HostsMachine::OnLost(size_t index, const std::string& reason, SteadyTime now) {
  now_ = now;
  Host& host = hosts_[index];
  if (exited_ || host.state == State::kGone || host.state == State::kEnded || host.state == State::kLost) return;
  // Its launcher may have been started.
  if (host.state == State::kStarting) host.launched = host.has_launcher = true;
  Lose(index, reason);
}

// The loss is logged, and later a fault that the agent names; other attempts are not.
void HostsMachine::Lose(size_t index, const std::string& reason) {
  Host& host = hosts_[index];
  if (!host.launched || !MayConnectAgain()) return Fail(index, reason);
  const bool was_connected = host.state != State::kConnecting;
  if ((was_connected || host.prepares) && !reason.empty() && std::exchange(host.complaint, reason) != reason) {
    Print(LogLevel::kWarning, host, absl::StrCat(reason, "; connecting again"));
  }
  host.retry_at = now_ + kRetry;
  host.state = State::kLost;
  if (Running() == 0) all_lost_until_ = std::min(all_lost_until_, now_ + kAllLost);
}

void HostsMachine::Fail(size_t index, const std::string& reason) {
  Host& host = hosts_[index];
  EndOutput(index);
  const bool was_probing = host.state == State::kProbing;
  host.state = State::kGone;
  Print(LogLevel::kError, host, reason);
  if (started_) return CheckEnd();
  if (!was_probing && Count(State::kProbing) == 0 && listening_.port() == 0) return Proceed();
  GiveUp("a host was lost during the start");
}

// The host has no launcher any more; or none yet, if the connection was lost before its Start arrived.
void HostsMachine::StartAgain(size_t index) {
  Host& host = hosts_[index];
  host.has_launcher = false;
  const bool had_one = !host.folder.empty();
  if (had_one && !plan_.may_restart) return Fail(index, "its launcher is gone");
  if (had_one && Running() == 0) {
    // Alone it would begin the job anew: the launchers of the others are found first.
    const bool others = std::any_of(hosts_.begin(), hosts_.end(), [](const Host& h) { return h.has_launcher; });
    if (others) return Lose(index, "");
    shell_->Print(LogLevel::kError, "no host has a launcher of the job any more");
    return Exit(worker_contract::kExitFailed);
  }
  Print(LogLevel::kWarning, host, "connected again; starting a launcher there");
  StartOn(index);
}

// Continues when all hosts have answered, so that all faults are shown at once.
void HostsMachine::Proceed() {
  if (Count(State::kConnecting) > 0) return;
  const int gone = Count(State::kGone), count = static_cast<int>(hosts_.size());
  if (plan_.follows()) {
    started_ = true;
    return CheckEnd();
  }
  if (count - gone < std::max(plan_.min_nodes, 1)) {
    return GiveUp(absl::StrCat(gone, " of ", Counted(count, "host"), " can't take part"));
  }
  if (gone > 0) {
    shell_->Print(LogLevel::kWarning, absl::StrCat("starting on ", count - gone, " of ", count, " hosts"));
  }
  const NodeComparison comparison = CompareNodes(Readings());
  if (!comparison.table.empty()) {
    shell_->Show(true, absl::StrCat("The hosts differ:\n", comparison.table));
  }
  for (const std::string& text : comparison.warnings) shell_->Print(LogLevel::kWarning, text);
  for (const std::string& text : comparison.errors) shell_->Print(LogLevel::kError, text);
  if (!comparison.errors.empty()) return GiveUp("the hosts differ");
  if (hosts_.size() == 1 || plan_.has_endpoint) return StartAll("");
  AskToListen();
}

void HostsMachine::AskToListen() {
  const size_t first = TakingPart().front();
  hosts_[first].state = State::kProbing;
  hosts_[first].heard = now_;
  HostCommand command;
  command.mutable_listen()->set_word(plan_.job_id);
  if (plan_.ports) {
    command.mutable_listen()->set_first_port(plan_.ports->first);
    command.mutable_listen()->set_last_port(plan_.ports->last);
  }
  shell_->Send(first, command);
}

void HostsMachine::AskToReach(const HostReport::Listening& listening) {
  listening_ = listening;
  const std::vector<size_t> taking_part = TakingPart();
  hosts_[taking_part.front()].state = State::kReady;
  HostCommand command;
  HostCommand::Reach* const reach = command.mutable_reach();
  for (const HostReport::Address& address : listening.addresses()) reach->add_addresses(address.address());
  reach->set_port(listening.port());
  reach->set_word(plan_.job_id);
  for (size_t i = 1; i < taking_part.size(); ++i) {
    hosts_[taking_part[i]].state = State::kProbing;
    hosts_[taking_part[i]].heard = now_;
    shell_->Send(taking_part[i], command);
  }
  ChooseAddress();
}

// Once all hosts have tried.
void HostsMachine::ChooseAddress() {
  if (Count(State::kProbing) > 0) return;
  const std::vector<HostReading> readings = Readings();
  const AddressChoice choice = ChooseCommonAddress(listening_, readings);
  for (const std::string& text : choice.errors) shell_->Print(LogLevel::kError, text);
  const std::string& first = readings.front().name;
  if (!choice.index) {
    return GiveUp(absl::StrCat(
        "no address of ", first,
        " can be reached from all other hosts: open the firewall between them (--port-range=FIRST-LAST names the ports "
        "that are open), or start with another host"));
  }
  const HostReport::Address& chosen = listening_.addresses(*choice.index);
  if (*choice.index > 0) {
    shell_->Print(LogLevel::kInfo, absl::StrCat("the other hosts reach ", first, " at ", chosen.address(), " (",
                                                chosen.interface(), "), not at ", listening_.addresses(0).address()));
  }
  StartAll(Endpoint{chosen.address(), listening_.port()}.ToString());
}

void HostsMachine::StartAll(const std::string& endpoint) {
  started_ = true;
  endpoint_ = endpoint;
  const std::vector<size_t> taking_part = TakingPart();
  for (size_t rank = 0; rank < taking_part.size(); ++rank) {
    hosts_[taking_part[rank]].node_rank = static_cast<int>(rank);
    StartOn(taking_part[rank]);
  }
}

void HostsMachine::StartOn(size_t index) {
  Host& host = hosts_[index];
  host.state = State::kStarting;
  host.heard = now_;
  host.positions = {};
  HostCommand command;
  HostCommand::Start* const start = command.mutable_start();
  const auto add = [&](const std::string& argument) { start->add_arguments(argument); };
  for (const std::string& flag : plan_.flags) add(flag);
  if (!plan_.has_node_count) add(absl::StrCat("--nnodes=", hosts_.size()));
  if (hosts_.size() > 1) add(absl::StrCat("--node-rank=", host.node_rank));
  if (!endpoint_.empty()) add(absl::StrCat("--rdzv-endpoint=", endpoint_));
  add(absl::StrCat("--rdzv-id=", plan_.job_id));
  if (host.spec.slots) add(absl::StrCat("--nproc-per-node=", *host.spec.slots));
  add("--");
  for (const std::string& word : plan_.script) add(word);
  shell_->Send(index, command);
}

void HostsMachine::EndOutput(size_t host) {
  for (const bool is_stderr : {false, true}) shell_->ShowOutput(host, is_stderr, std::nullopt);
}

// The job ends by itself when one of its launchers has failed; unless that happened before the launchers met, or it is
// the server's.
void HostsMachine::CheckEnd() {
  int code = 0;
  for (Host& host : hosts_) {
    if (!MayConnectAgain() && IsAway(host)) host.state = State::kGone;
    code = std::max(code, host.code.value_or(0));
  }
  const int ended = Count(State::kEnded), gone = Count(State::kGone);
  if (ended + gone == static_cast<int>(hosts_.size())) {
    return Exit(ended >= (plan_.detach ? plan_.min_nodes : 1) ? code : worker_contract::kExitFailed);
  }
  if ((code != 0 || gone > 0) && Running() < plan_.min_nodes && !plan_.follows() && !plan_.detach) {
    stop_rest_at_ = std::min(stop_rest_at_, now_ + plan_.stop_patience);
  }
}

std::string HostsMachine::DetachedText() const {
  std::vector<std::string> names;
  std::string text =
      absl::StrCat("Job ", plan_.job_id, " runs on ", Counted(Count(State::kEnded), "host"), ". Output:\n");
  for (const Host& host : hosts_) {
    if (host.state != State::kEnded) continue;
    absl::StrAppend(&text, "  ", host.spec.name, ":", host.folder, "\n");
    names.push_back(host.spec.name);
  }
  absl::StrAppend(&text, "To follow it: ddprun --hosts=", absl::StrJoin(names, ","), " --rdzv-id=", plan_.job_id, "\n");
  if (endpoint_.empty()) return text;
  const std::string ddprunctl =
      absl::StrCat("ddprunctl --server=", endpoint_,
                   plan_.token_file.empty() ? "" : absl::StrCat(" --token-file=", plan_.token_file));
  return absl::StrCat(text, "To see it: ", ddprunctl, " show ", plan_.job_id, "\nTo end it: ", ddprunctl, " stop ",
                      plan_.job_id, "\n");
}

void HostsMachine::Exit(int code) {
  std::vector<HostFailure> failures;
  for (const Host& host : hosts_) {
    // A user who has stopped the job knows why nodes have left it.
    const bool is_stop = signals_ > 0 && host.failure && host.failure->verdict().first_cause().rank() < 0;
    if (host.failure && !is_stop) failures.push_back({host.spec.name, host.reading.facts.host(), *host.failure});
  }
  if (plan_.detach && Count(State::kEnded) > 0) shell_->Show(false, DetachedText());
  exited_ = true;
  shell_->Exit(code, failures.empty() ? "" : FailureSummary(failures, plan_.time_zone));
}

void HostsMachine::GiveUp(const std::string& why) {
  shell_->Print(LogLevel::kError, absl::StrCat("no worker was started: ", why));
  Exit(worker_contract::kExitFailed);
}

// The first signal lets the launchers stop their workers, the second kills them, the third ends this process too. One
// that only follows a detached job ends alone.
void HostsMachine::OnSignal(int number) {
  ++signals_;
  for (Host& host : hosts_) {
    if (IsAway(host)) host.state = State::kGone;
  }
  if (started_ && !plan_.follows() && signals_ <= 2 && Running() > 0) return Signal(number);
  Exit(worker_contract::ExitCodeOfSignal(number));
}

void HostsMachine::Signal(int number) {
  HostCommand command;
  command.mutable_signal()->set_number(number);
  SendToRunning(command);
}

void HostsMachine::SendToRunning(const HostCommand& command) {
  for (size_t i = 0; i < hosts_.size(); ++i) {
    const State state = hosts_[i].state;
    if (state == State::kRunning || state == State::kStarting) shell_->Send(i, command);
  }
}

void HostsMachine::OnOutputBlocked(bool is_stderr, bool blocked) {
  holds_output_[is_stderr] = blocked;
  Ping();
}

void HostsMachine::Ping() {
  HostCommand command;
  command.mutable_ping()->set_hold_stdout(holds_output_[false]);
  command.mutable_ping()->set_hold_stderr(holds_output_[true]);
  SendToRunning(command);
}

SteadyTime HostsMachine::NextDeadline() const {
  SteadyTime next = std::min({next_ping_, stop_rest_at_, all_lost_until_});
  for (const Host& host : hosts_) {
    if (host.state == State::kLost) {
      next = std::min(next, host.retry_at);
    } else if (host.state != State::kReady && host.state != State::kEnded && host.state != State::kGone) {
      next = std::min(next, host.heard + kStuck);
    }
  }
  return next;
}

void HostsMachine::OnDeadline(SteadyTime now) {
  now_ = now;
  if (next_ping_ <= now_) {
    next_ping_ = now_ + kPingInterval;
    Ping();
  }
  if (all_lost_until_ <= now_) {
    all_lost_until_ = SteadyTime::InfiniteFuture();
    for (Host& host : hosts_) {
      if (!IsAway(host)) continue;
      host.state = State::kGone;
      Print(LogLevel::kError, host,
            absl::StrCat("it could not be reached for ", absl::FormatDuration(kAllLost),
                         "; by now it has stopped its launcher, unless the job is detached"));
    }
    return CheckEnd();
  }
  if (stop_rest_at_ <= now_) {
    stop_rest_at_ = SteadyTime::InfiniteFuture();
    shell_->Print(LogLevel::kError, "the other hosts have lost their job: stopping it there");
    Signal(SIGTERM);
  }
  for (size_t i = 0; i < hosts_.size() && !exited_; ++i) {
    Host& host = hosts_[i];
    if (host.state == State::kLost) {
      if (now_ < host.retry_at) continue;
      host.state = State::kConnecting;
      host.heard = now_;
      host.prepares = false;
      shell_->Connect(i);
    } else if (host.state != State::kReady && host.heard + kStuck <= now_) {
      const bool connects = host.state == State::kConnecting && !host.prepares;
      const char* const what = connects ? "ssh and the copy of the program make no progress" : "it does not answer";
      const std::string text =
          absl::StrCat(what, " for ", absl::ToInt64Seconds(kStuck), " s (a file system that hangs?)");
      OnLost(i, text, now);
    }
  }
}

}  // namespace ddprun::launcher

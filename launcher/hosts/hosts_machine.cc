#include "launcher/hosts/hosts_machine.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/counted.h"
#include "base/endpoint.h"
#include "base/text.h"
#include "launcher/hosts/failure_message.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::launcher {
namespace {

using hosts::v1::HostCommand;
using hosts::v1::HostReport;

constexpr absl::Duration kPingInterval = absl::Seconds(5);
constexpr absl::Duration kStuck = absl::Seconds(60);  // without a sign of life while something is expected
constexpr absl::Duration kFirstRetry = absl::Seconds(1);
constexpr absl::Duration kMaxRetry = absl::Minutes(1);
// An agent that has lost its connection stops its launcher after a minute.
constexpr absl::Duration kAllLost = absl::Minutes(2);
constexpr size_t kMaxLineBytes = 64 << 10;
constexpr size_t kMaxReasonBytes = 1000;

}  // namespace

HostsMachine::HostsMachine(HostsPlan plan, SteadyTime now) : plan_(std::move(plan)), next_ping_(now + kPingInterval) {
  for (const HostSpec& spec : plan_.hosts) {
    Host host;
    host.spec = spec;
    host.heard = now;
    hosts_.push_back(std::move(host));
  }
}

size_t HostsMachine::Count(State state) const {
  return std::count_if(hosts_.begin(), hosts_.end(), [&](const Host& host) { return host.state == state; });
}

// An answer is expected.
bool HostsMachine::IsWaiting(const Host& host) const {
  return host.state == State::kConnecting || host.state == State::kPreparing || host.state == State::kListening ||
         host.state == State::kReaching || host.state == State::kReconnecting || host.state == State::kReturning;
}

bool HostsMachine::IsLost(const Host& host) const {
  return host.state == State::kLost || host.state == State::kReconnecting || host.state == State::kReturning;
}

std::vector<size_t> HostsMachine::TakingPart() const {
  std::vector<size_t> all;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].state != State::kGone) all.push_back(i);
  }
  return all;
}

void HostsMachine::OnConnected(size_t host, SteadyTime now, HostsEffects* effects) {
  const bool again = hosts_[host].state == State::kReconnecting;
  if (hosts_[host].state != State::kConnecting && !again) return;
  hosts_[host].state = again ? State::kReturning : State::kPreparing;
  hosts_[host].heard = hosts_[host].asked = now;
  HostCommand command;
  *command.mutable_prepare() = plan_.prepare;
  // Two names may mean one host.
  if (plan_.may_reconnect) command.mutable_prepare()->set_session(absl::StrCat(plan_.session, "-", host));
  effects->push_back(hosts_effect::Send{host, std::move(command)});
}

void HostsMachine::OnReport(size_t index, const HostReport& report, SteadyTime now, absl::Time wall_time,
                            HostsEffects* effects) {
  Host& host = hosts_[index];
  if (host.state == State::kGone || host.state == State::kLost) return;
  host.heard = now;
  switch (report.kind_case()) {
    case HostReport::kFacts:
      host.reading.name = host.spec.name;
      host.reading.facts = report.facts();
      host.reading.clock_ahead = absl::FromUnixNanos(report.facts().clock_nanos()) - wall_time;
      host.reading.clock_error = now - host.asked;
      if (host.state == State::kReturning) return Return(index, now, effects);
      host.state = State::kReady;
      return Proceed(now, effects);
    case HostReport::kAttached:
      host.state = State::kRunning;
      host.returned = now;
      all_lost_until_ = SteadyTime::InfiniteFuture();
      effects->push_back(hosts_effect::Print{LogLevel::kWarning,
                                             absl::StrCat(host.spec.name,
                                                          ": connected again; its launcher has continued, some of its "
                                                          "output may be missing")});
      return;
    case HostReport::kListening: return AskToReach(report.listening(), now, effects);
    case HostReport::kReached:
      host.errors.assign(report.reached().errors().begin(), report.reached().errors().end());
      host.state = State::kReady;
      return ChooseAddress(effects);
    case HostReport::kOutput: return Show(host, report.output().is_stderr(), report.output().data(), effects);
    case HostReport::kEnded:
      EndLines(host, effects);
      host.state = State::kEnded;
      host.code = report.ended().code();
      if (report.ended().has_failure()) host.failure = report.ended().failure();
      return CheckEnd(now, effects);
    case HostReport::kDetached:
      host.state = State::kEnded;
      host.code = 0;
      host.output = report.detached().output();
      return CheckEnd(now, effects);
    case HostReport::kFailed:
      if (!IsLost(host)) return Fail(index, report.failed().reason(), now, effects);
      if (std::exchange(host.complaint, report.failed().reason()) != report.failed().reason()) {
        effects->push_back(hosts_effect::Print{
            LogLevel::kWarning,
            absl::StrCat(host.spec.name, ": ", OneLine(report.failed().reason(), kMaxReasonBytes), "; trying again")});
      }
      return FailOrLose(index, report.failed().reason(), now, effects);
    case HostReport::KIND_NOT_SET: return;
  }
}

void HostsMachine::OnLost(size_t host, const std::string& reason, SteadyTime now, HostsEffects* effects) {
  const State state = hosts_[host].state;
  if (state == State::kGone || state == State::kEnded || state == State::kLost) return;
  FailOrLose(host, reason, now, effects);
}

void HostsMachine::Fail(size_t index, const std::string& reason, SteadyTime now, HostsEffects* effects) {
  Host& host = hosts_[index];
  EndLines(host, effects);
  host.state = State::kGone;
  effects->push_back(
      hosts_effect::Print{LogLevel::kError, absl::StrCat(host.spec.name, ": ", OneLine(reason, kMaxReasonBytes))});
  if (started_) return CheckEnd(now, effects);
  if (Count(State::kListening) + Count(State::kReaching) == 0 && listening_.port() == 0) return Proceed(now, effects);
  GiveUp("a host was lost during the start", effects);
}

// A launcher that has ended says that the job is over, or that this node left it.
bool HostsMachine::MayReconnect() const {
  return plan_.may_reconnect && started_ && signals_ == 0 && Count(State::kEnded) == 0;
}

void HostsMachine::FailOrLose(size_t index, const std::string& reason, SteadyTime now, HostsEffects* effects) {
  const Host& host = hosts_[index];
  if (MayReconnect() && (host.state == State::kRunning || IsLost(host))) return Lose(index, reason, now, effects);
  Fail(index, reason, now, effects);
}

// Says so once, and nothing about the attempts that follow.
void HostsMachine::Lose(size_t index, const std::string& reason, SteadyTime now, HostsEffects* effects) {
  Host& host = hosts_[index];
  const bool was_running = host.state == State::kRunning;
  if (was_running) {
    EndLines(host, effects);
    effects->push_back(hosts_effect::Print{
        LogLevel::kWarning,
        absl::StrCat(host.spec.name, ": ", OneLine(reason, kMaxReasonBytes), "; connecting again")});
  }
  const bool was_stable = was_running && now - host.returned > kMaxRetry;
  host.backoff = was_stable ? kFirstRetry : std::clamp(2 * host.backoff, kFirstRetry, kMaxRetry);
  host.retry_at = now + host.backoff;
  host.state = State::kLost;
  if (Count(State::kRunning) == 0) all_lost_until_ = std::min(all_lost_until_, now + kAllLost);
}

// The host has no launcher any more.
void HostsMachine::Return(size_t index, SteadyTime now, HostsEffects* effects) {
  hosts_[index].has_launcher = false;
  if (Count(State::kRunning) == 0) {
    // Alone it would begin the job anew: the launchers of the others are found first.
    if (std::any_of(hosts_.begin(), hosts_.end(), [&](const Host& h) { return IsLost(h) && h.has_launcher; })) {
      return Lose(index, "", now, effects);
    }
    effects->push_back(hosts_effect::Print{LogLevel::kError, "no host has a launcher of the job any more"});
    return Exit(worker_contract::kExitFailed, effects);
  }
  std::vector<HostReading> readings;
  for (const Host& host : hosts_) {
    if (host.state == State::kRunning) readings.push_back(host.reading);
  }
  readings.push_back(hosts_[index].reading);
  const NodeComparison comparison = CompareNodes(readings);
  if (!comparison.errors.empty()) {
    hosts_[index].state = State::kGone;
    for (const std::string& text : comparison.errors) effects->push_back(hosts_effect::Print{LogLevel::kError, text});
    return CheckEnd(now, effects);
  }
  effects->push_back(hosts_effect::Print{
      LogLevel::kWarning, absl::StrCat(hosts_[index].spec.name, ": connected again; starting a launcher there")});
  hosts_[index].returned = now;
  Start(index, effects);
}

void HostsMachine::GiveUpLost() {
  for (Host& host : hosts_) {
    if (IsLost(host)) host.state = State::kGone;
  }
}

// Continues when all hosts have answered, so that all faults are shown at once.
void HostsMachine::Proceed(SteadyTime now, HostsEffects* effects) {
  if (std::any_of(hosts_.begin(), hosts_.end(), [&](const Host& host) { return IsWaiting(host); })) return;
  const size_t gone = Count(State::kGone);
  if (static_cast<int>(hosts_.size() - gone) < std::max(plan_.min_nodes, 1)) {
    return GiveUp(absl::StrCat(gone, " of ", Counted(static_cast<int>(hosts_.size()), "host"), " can't take part"),
                  effects);
  }
  if (gone > 0) {
    effects->push_back(hosts_effect::Print{
        LogLevel::kWarning, absl::StrCat("starting on ", hosts_.size() - gone, " of ", hosts_.size(), " hosts")});
  }
  Compare(now, effects);
}

void HostsMachine::Compare(SteadyTime now, HostsEffects* effects) {
  std::vector<HostReading> readings;
  const std::vector<size_t> taking_part = TakingPart();
  for (const size_t i : taking_part) readings.push_back(hosts_[i].reading);
  const NodeComparison comparison = CompareNodes(readings);
  if (!comparison.table.empty()) {
    effects->push_back(hosts_effect::Show{true, absl::StrCat("The hosts differ:\n", comparison.table)});
  }
  for (const std::string& text : comparison.warnings) effects->push_back(hosts_effect::Print{LogLevel::kWarning, text});
  for (const std::string& text : comparison.errors) effects->push_back(hosts_effect::Print{LogLevel::kError, text});
  if (!comparison.errors.empty()) return GiveUp("the hosts differ", effects);
  if (hosts_.size() == 1 || plan_.has_endpoint) return StartAll("", effects);
  Host& first = hosts_[taking_part.front()];
  first.state = State::kListening;
  first.heard = now;
  HostCommand command;
  command.mutable_listen()->set_word(plan_.job_id);
  if (plan_.ports) {
    command.mutable_listen()->set_first_port(plan_.ports->first);
    command.mutable_listen()->set_last_port(plan_.ports->last);
  }
  effects->push_back(hosts_effect::Send{taking_part.front(), std::move(command)});
}

void HostsMachine::AskToReach(const HostReport::Listening& listening, SteadyTime now, HostsEffects* effects) {
  listening_ = listening;
  const std::vector<size_t> taking_part = TakingPart();
  hosts_[taking_part.front()].state = State::kReady;
  HostCommand command;
  HostCommand::Reach* const reach = command.mutable_reach();
  for (const HostReport::Address& address : listening.addresses()) reach->add_addresses(address.address());
  reach->set_port(listening.port());
  reach->set_word(plan_.job_id);
  for (size_t i = 1; i < taking_part.size(); ++i) {
    hosts_[taking_part[i]].state = State::kReaching;
    hosts_[taking_part[i]].heard = now;
    effects->push_back(hosts_effect::Send{taking_part[i], command});
  }
  ChooseAddress(effects);
}

// Once all hosts have tried.
void HostsMachine::ChooseAddress(HostsEffects* effects) {
  if (Count(State::kReaching) > 0) return;
  const std::vector<size_t> taking_part = TakingPart();
  const std::string& first = hosts_[taking_part.front()].spec.name;
  const auto reaches = [&](size_t host, int address) {
    return address < static_cast<int>(hosts_[host].errors.size()) && hosts_[host].errors[address].empty();
  };
  for (int address = 0; address < listening_.addresses_size(); ++address) {
    if (!std::all_of(taking_part.begin() + 1, taking_part.end(), [&](size_t i) { return reaches(i, address); })) {
      continue;
    }
    const HostReport::Address& chosen = listening_.addresses(address);
    if (address > 0) {
      effects->push_back(hosts_effect::Print{
          LogLevel::kInfo, absl::StrCat("the other hosts reach ", first, " at ", chosen.address(), " (",
                                        chosen.interface(), "), not at ", listening_.addresses(0).address())});
    }
    return StartAll(Endpoint{chosen.address(), listening_.port()}.ToString(), effects);
  }
  for (size_t k = 1; k < taking_part.size(); ++k) {
    std::vector<std::string> attempts;
    for (int address = 0; address < listening_.addresses_size(); ++address) {
      const HostReport::Address& tried = listening_.addresses(address);
      attempts.push_back(
          absl::StrCat(tried.address(), " (", tried.interface(),
                       "): ", reaches(taking_part[k], address) ? "works" : hosts_[taking_part[k]].errors[address]));
    }
    effects->push_back(hosts_effect::Print{
        LogLevel::kError,
        absl::StrCat(hosts_[taking_part[k]].spec.name, " from port to port ", listening_.port(), " of ", first, ": ",
                     attempts.empty() ? "it has no address" : absl::StrJoin(attempts, ", "))});
  }
  GiveUp(absl::StrCat("no address of ", first,
                      " can be reached from all other hosts: open the firewall between them (--port-range=FIRST-LAST "
                      "names the ports that are open), or start with another host"),
         effects);
}

void HostsMachine::StartAll(const std::string& endpoint, HostsEffects* effects) {
  started_ = true;
  endpoint_ = endpoint;
  const std::vector<size_t> taking_part = TakingPart();
  for (size_t rank = 0; rank < taking_part.size(); ++rank) {
    hosts_[taking_part[rank]].node_rank = static_cast<int>(rank);
    Start(taking_part[rank], effects);
  }
}

void HostsMachine::Start(size_t index, HostsEffects* effects) {
  Host& host = hosts_[index];
  host.state = State::kRunning;
  host.has_launcher = true;
  HostCommand command;
  HostCommand::Start* const start = command.mutable_start();
  start->set_detach(plan_.detach);
  start->set_job(plan_.job_id);
  start->set_may_reconnect(plan_.may_reconnect);
  const auto add = [&](const std::string& argument) { start->add_arguments(argument); };
  for (const std::string& flag : plan_.flags) add(flag);
  if (!plan_.has_node_count) add(absl::StrCat("--nnodes=", hosts_.size()));
  if (hosts_.size() > 1) add(absl::StrCat("--node-rank=", host.node_rank));
  if (!endpoint_.empty()) add(absl::StrCat("--rdzv-endpoint=", endpoint_));
  add(absl::StrCat("--rdzv-id=", plan_.job_id));
  if (host.spec.slots) add(absl::StrCat("--nproc-per-node=", *host.spec.slots));
  add("--");
  for (const std::string& word : plan_.script) add(word);
  effects->push_back(hosts_effect::Send{index, std::move(command)});
}

// The rest of lines that will not be completed.
void HostsMachine::EndLines(Host& host, HostsEffects* effects) {
  for (const bool is_stderr : {false, true}) {
    if (!host.partial[is_stderr].empty()) Show(host, is_stderr, "\n", effects);
  }
}

void HostsMachine::Show(Host& host, bool is_stderr, const std::string& data, HostsEffects* effects) {
  std::string& partial = host.partial[is_stderr];
  absl::StrAppend(&partial, data);
  std::string text;
  size_t begin = 0;
  while (true) {
    size_t end = partial.find('\n', begin);
    if (end == std::string::npos && partial.size() - begin < kMaxLineBytes) break;
    const size_t length = std::min(end, partial.size()) - begin;
    absl::StrAppend(&text, "[", host.spec.name, "] ", absl::string_view(partial).substr(begin, length), "\n");
    begin += length + (end == std::string::npos ? 0 : 1);
  }
  partial.erase(0, begin);
  if (!text.empty()) effects->push_back(hosts_effect::Show{is_stderr, std::move(text)});
}

// The job ends by itself when one of its launchers has failed; unless that happened before the launchers met, or it is
// the server's.
void HostsMachine::CheckEnd(SteadyTime now, HostsEffects* effects) {
  if (!MayReconnect()) GiveUpLost();
  const size_t running = Count(State::kRunning);
  int code = 0;
  bool any_ended = false;
  for (const Host& host : hosts_) {
    any_ended |= host.state == State::kEnded;
    code = std::max(code, host.code.value_or(0));
  }
  if (running == 0 && std::none_of(hosts_.begin(), hosts_.end(), [&](const Host& host) { return IsLost(host); })) {
    if (plan_.detach && any_ended) TellDetached(effects);
    return Exit(any_ended ? code : worker_contract::kExitFailed, effects);
  }
  const bool has_lost = Count(State::kGone) > 0;
  if ((code != 0 || has_lost) && static_cast<int>(running) < plan_.min_nodes) {
    stop_rest_at_ = std::min(stop_rest_at_, now + plan_.stop_patience);
  }
}

void HostsMachine::TellDetached(HostsEffects* effects) const {
  std::string text = absl::StrCat("Job ", plan_.job_id, " runs on ",
                                  Counted(static_cast<int>(Count(State::kEnded)), "host"), ". Output:\n");
  for (const Host& host : hosts_) {
    if (host.state == State::kEnded) absl::StrAppend(&text, "  ", host.spec.name, ":", host.output, "\n");
  }
  if (!endpoint_.empty()) {
    const std::string ddprunctl =
        absl::StrCat("ddprunctl --server=", endpoint_,
                     plan_.token_file.empty() ? "" : absl::StrCat(" --token-file=", plan_.token_file));
    absl::StrAppend(&text, "To see it: ", ddprunctl, " show ", plan_.job_id, "\nTo end it: ", ddprunctl, " stop ",
                    plan_.job_id, "\n");
  }
  effects->push_back(hosts_effect::Show{false, text});
}

void HostsMachine::Exit(int code, HostsEffects* effects) const {
  std::vector<HostFailure> failures;
  for (const Host& host : hosts_) {
    // A user who has stopped the job knows why nodes have left it.
    const bool is_stop = signals_ > 0 && host.failure && host.failure->verdict().first_cause().rank() < 0;
    if (host.failure && !is_stop) failures.push_back({host.spec.name, host.reading.facts.host(), *host.failure});
  }
  if (!failures.empty()) effects->push_back(hosts_effect::Show{true, JobSummary(failures, plan_.time_zone)});
  effects->push_back(hosts_effect::Exit{code});
}

void HostsMachine::GiveUp(const std::string& why, HostsEffects* effects) const {
  effects->push_back(hosts_effect::Print{LogLevel::kError, absl::StrCat("no worker was started: ", why)});
  effects->push_back(hosts_effect::Exit{worker_contract::kExitFailed});
}

// The first signal lets the launchers stop their workers, the second kills them, the third ends this process too.
void HostsMachine::OnSignal(int number, SteadyTime, HostsEffects* effects) {
  if (!started_ || ++signals_ > 2) {
    return Exit(worker_contract::ExitCodeOfSignal(number), effects);
  }
  GiveUpLost();
  if (Count(State::kRunning) == 0) return Exit(worker_contract::ExitCodeOfSignal(number), effects);
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].state != State::kRunning) continue;
    HostCommand command;
    command.mutable_signal()->set_number(number);
    effects->push_back(hosts_effect::Send{i, std::move(command)});
  }
}

SteadyTime HostsMachine::NextDeadline() const {
  SteadyTime next = std::min({next_ping_, stop_rest_at_, all_lost_until_});
  for (const Host& host : hosts_) {
    if (host.state == State::kLost) next = std::min(next, host.retry_at);
    if (IsWaiting(host)) next = std::min(next, host.heard + kStuck);
  }
  return next;
}

void HostsMachine::OnDeadline(SteadyTime now, HostsEffects* effects) {
  if (next_ping_ <= now) {
    next_ping_ = now + kPingInterval;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      const State state = hosts_[i].state;
      if (state == State::kConnecting || state == State::kLost || state == State::kReconnecting ||
          state == State::kEnded || state == State::kGone) {
        continue;
      }
      HostCommand command;
      command.mutable_ping();
      effects->push_back(hosts_effect::Send{i, std::move(command)});
    }
  }
  if (all_lost_until_ <= now) {
    effects->push_back(hosts_effect::Print{LogLevel::kError,
                                           absl::StrCat("no host could be reached for ", absl::FormatDuration(kAllLost),
                                                        "; by now each has stopped its launcher")});
    return Exit(worker_contract::kExitFailed, effects);
  }
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].state != State::kLost || now < hosts_[i].retry_at) continue;
    hosts_[i].state = State::kReconnecting;
    hosts_[i].heard = now;
    effects->push_back(hosts_effect::Connect{i});
  }
  if (stop_rest_at_ <= now) {
    stop_rest_at_ = SteadyTime::InfiniteFuture();
    effects->push_back(hosts_effect::Print{LogLevel::kError, "the other hosts have lost their job: stopping it there"});
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (hosts_[i].state != State::kRunning) continue;
      HostCommand command;
      command.mutable_signal()->set_number(SIGTERM);
      effects->push_back(hosts_effect::Send{i, std::move(command)});
    }
  }
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (!IsWaiting(hosts_[i]) || now < hosts_[i].heard + kStuck) continue;
    const bool connects = hosts_[i].state == State::kConnecting || hosts_[i].state == State::kReconnecting;
    const char* const what = connects ? "ssh and the copy of the program make no progress" : "it does not answer";
    FailOrLose(i, absl::StrCat(what, " for ", absl::ToInt64Seconds(kStuck), " s (a file system that hangs?)"), now,
               effects);
    if (!effects->empty() && std::holds_alternative<hosts_effect::Exit>(effects->back())) return;
  }
}

}  // namespace ddprun::launcher

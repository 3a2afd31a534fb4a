#include "tests/rendezvous/core/script.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "rendezvous/core/limits.h"
#include "rendezvous/core/validate.h"
#include "tests/rendezvous/core/render.h"

namespace ddprun::rendezvous {
namespace {

constexpr char kHome[] = "job";
// Commands that are carried out for each of the nodes that follow.
constexpr absl::string_view kOfSeveralNodes[] = {"join", "rejoin", "succeed", "ready", "drop", "silence", "beat"};
constexpr absl::Duration kBeat = absl::Milliseconds(500);

// A scenario that can't be read is a mistake of its author: there is no use in going on.
[[noreturn]] void Die(absl::string_view what) {
  std::fprintf(stderr, "scenario: %s\n", std::string(what).c_str());
  std::abort();
}

absl::Duration Duration(const std::string& text) {
  absl::Duration d;
  if (!absl::ParseDuration(text, &d)) Die(absl::StrCat("no duration: ", text));
  return d;
}

int Int(absl::string_view text) {
  int n = 0;
  if (!absl::SimpleAtoi(text, &n)) Die(absl::StrCat("no number: ", text));
  return n;
}

// "1,2"
std::vector<int32_t> RanksOf(const std::optional<std::string>& text) {
  std::vector<int32_t> ranks;
  for (const absl::string_view rank : absl::StrSplit(text.value_or(""), ',', absl::SkipEmpty())) {
    ranks.push_back(Int(rank));
  }
  return ranks;
}

// "0@12,1": local rank 0 at step 12, and 1 without a state.
std::vector<Survivor> SurvivorsOf(const std::string& text) {
  std::vector<Survivor> survivors;
  for (absl::string_view one : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(one, '@');
    survivors.push_back(NewSurvivor(Int(parts[0])));
    if (parts.size() > 1) survivors.back().set_committed_step(Int(parts[1]));
  }
  return survivors;
}

Join::Phase PhaseOf(const std::string& text) {
  if (text == "idle") return Join::PHASE_IDLE;
  if (text == "running") return Join::PHASE_RUNNING;
  if (text == "succeeded") return Join::PHASE_SUCCEEDED;
  if (text == "stopping") return Join::PHASE_STOPPING;
  Die(absl::StrCat("no phase: ", text));
}

}  // namespace

int Script::Words::Number(const std::string& name, int fallback) const {
  const auto it = named.find(name);
  return it == named.end() ? fallback : Int(it->second);
}

std::optional<std::string> Script::Words::Text(const std::string& name) const {
  const auto it = named.find(name);
  return it == named.end() ? std::nullopt : std::make_optional(it->second);
}

Script::Script() : next_beat_(now_ + kBeat) {}

Script::Words Script::Parse(absl::string_view line) {
  Words words;
  for (absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    const size_t equal = word.find('=');
    if (equal == absl::string_view::npos) {
      words.plain.emplace_back(word);
    } else {
      words.named[std::string(word.substr(0, equal))] = std::string(word.substr(equal + 1));
    }
  }
  const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 2));
  if (parts.size() == 3) words.rest = parts[2];
  return words;
}

std::string Script::Run(absl::string_view line) {
  output_.clear();
  line_began_ = now_;
  Words words = Parse(line);
  if (words.plain.empty()) Die(absl::StrCat("no command in: ", line));
  const std::vector<std::string> plain = words.plain;
  const bool starts = plain[0] == "start";
  if (starts) words.plain[0] = "join";
  Command(words);
  Flush();
  if (starts || absl::c_linear_search(kOfSeveralNodes, plain[0])) {
    for (size_t i = 2; i < plain.size(); ++i) {
      words.plain[1] = plain[i];
      Command(words);
      Flush();
    }
  }
  WriteTells();
  if (starts) LeaveOutUsualStart(plain);
  return output_;
}

// Only the first round remains, if before it the nodes were welcomed and waited, and after it the job runs.
void Script::LeaveOutUsualStart(const std::vector<std::string>& words) {
  std::string before, welcomed;
  for (size_t joined = 1; joined < words.size(); ++joined) {
    absl::StrAppend(&welcomed, welcomed.empty() ? "" : " ", words[joined]);
    const bool enough = joined == static_cast<size_t>(settings_.min_nodes());
    if (joined + 1 < words.size() && joined > 1 && !enough) continue;
    absl::StrAppend(&before, std::exchange(welcomed, ""), " <- welcome, beat every 500ms\n");
    if (joined + 1 < words.size()) absl::StrAppend(&before, enough ? "is last call\n" : "is waiting\n");
  }
  absl::string_view said = output_;
  if (absl::ConsumePrefix(&said, before) && absl::ConsumeSuffix(&said, "is running\n")) output_ = std::string(said);
}

Script::Launcher& Script::At(const std::string& name) {
  const auto it = launchers_.find(name);
  if (it == launchers_.end()) Die(absl::StrCat("no launcher: ", name));
  return it->second;
}

void Script::Command(const Words& words) {
  const std::string& command = words.plain[0];
  const std::string name = words.plain.size() > 1 ? words.plain[1] : "";
  const std::optional<std::string> launcher_user = words.Text("as");
  caller_ = launcher_user ? Caller{Role::kLauncher, *launcher_user, ""} : Caller{.name = "root"};
  if (command == "settings") return ApplySettings(words);
  if (command == "advance") return Advance(Duration(name));
  if (command == "events") {
    shows_events_ = true;
    return;
  }
  if (command == "end-command") {
    shows_end_command_ = true;
    return;
  }
  if (command == "state-dir") {
    keeps_records_ = true;
    if (auto life = words.Text("life")) longest_life_ = Duration(*life);
    registry_ = std::make_unique<Registry>(now_, keeps_records_);
    return;
  }
  if (command == "join") return JoinOnce(&launchers_[name], words, false);
  if (command == "restart-server") {
    registry_ = std::make_unique<Registry>(now_, keeps_records_);
    if (keeps_records_) {
      SavedState saved{.longest_life = longest_life_};
      for (const auto& [unused, record] : records_) saved.jobs.push_back(record);
      registry_->Restore(std::move(saved));
    }
    shown_.clear();
    for (auto& [unused, launcher] : launchers_) launcher.connected = false;
    return;
  }
  if (command == "show") {
    const std::string job = name.empty() ? kHome : name;
    const auto view = registry_->GetJob(job, now_);
    absl::StrAppend(&output_, view ? Render(*view) : absl::StrCat("no job ", job), "\n");
    return;
  }
  if (command == "list") {
    for (const v1::Job& view : registry_->ListJobs(now_)) absl::StrAppend(&output_, Render(view), "\n");
    return;
  }
  if (command == "stop") return Do(StopJob{name});
  if (command == "resize") {
    const std::vector<std::string> range = absl::StrSplit(name, ':');
    return Do(ResizeJob{kHome, Int(range.front()), Int(range.back())});
  }
  if (command == "drain") return Do(DrainHost{name});
  if (command == "undrain") return Do(UndrainHost{name});
  if (command == "inspect") {
    v1::InspectRequest question;
    question.set_job_id(kHome);
    const std::vector<int32_t> ranks = RanksOf(words.Text("ranks"));
    question.mutable_inspect()->mutable_ranks()->Assign(ranks.begin(), ranks.end());
    question.mutable_inspect()->set_native(words.Number("native", 0) != 0);
    for (const int32_t rank : RanksOf(words.Text("after"))) {
      question.mutable_inspect()->set_what(v1::Inspect::WHAT_OUTPUT);
      v1::OutputPosition* const position = question.mutable_inspect()->add_after();
      position->set_rank(rank);
      position->set_end(rank + 10);
    }
    const auto nodes = registry_->Inspect(question, caller_, now_, &effects_);
    if (!nodes.ok()) absl::StrAppend(&output_, nodes.status().ToString(), "\n");
    for (const InspectedNodes::Node& node : nodes.ok() ? nodes->nodes : std::vector<InspectedNodes::Node>()) {
      if (!node.asked) absl::StrAppend(&output_, node.host, " is not connected\n");
    }
    return;
  }
  if (command == "kick") return Do(KickNode{kHome, name});
  Launcher& launcher = At(name);
  const uint64_t current = launcher.join.has_current() ? launcher.join.current().round() : 0;
  const uint64_t round = words.Number("round", static_cast<int>(current));
  if (command == "rejoin") return JoinOnce(&launcher, words, true);
  if (command == "beat") return Send(&launcher, Heartbeat{});
  if (command == "fail") return Fail(&launcher, words);
  if (command == "hang" || command == "continue" || command == "replace" || command == "mismatch" ||
      command == "straggler")
    return ReportHang(&launcher, round, words);
  if (command == "leave") {
    std::string reason = words.rest;
    const bool has_workers = words.Number("workers", 0) != 0;
    const int signal = words.Number("signal", 0);
    for (int i = 0; i < has_workers + (signal != 0); ++i) {
      reason.erase(0, std::min(reason.size(), reason.find(' ') + 1));
    }
    Send(&launcher, NewLeave(reason, has_workers, signal));
    launcher.connected = has_workers;
    return;
  }
  if (command == "succeed") {
    launcher.join.set_phase(Join::PHASE_SUCCEEDED);
    return Send(&launcher, NewGroupSucceeded(round));
  }
  if (command == "ready") {
    launcher.join.set_phase(Join::PHASE_IDLE);
    launcher.join.set_store_port(words.Number("port", next_port_++));
    TakeSurvivors(&launcher.join, words);
    return Send(&launcher, NewReady(round, launcher.join.store_port(), "", launcher.join.survivors(),
                                    launcher.join.can_reform(), words.Number("left-out", 0) != 0));
  }
  if (command == "drop") return Drop(&launcher);
  if (command == "silence") {
    launcher.silent = true;
    return;
  }
  Die(absl::StrCat("no such command: ", command));
}

void Script::Do(const rendezvous::Command& command) {
  const absl::Status status = registry_->OnCommand(command, caller_, now_, &effects_);
  if (!status.ok()) absl::StrAppend(&output_, status.ToString(), "\n");
}

void Script::ApplySettings(const Words& words) {
  if (auto v = words.Text("nnodes")) {
    const std::vector<std::string> range = absl::StrSplit(*v, ':');
    settings_.set_min_nodes(Int(range.front()));
    settings_.set_max_nodes(Int(range.back()));
  }
  settings_.set_max_restarts(words.Number("restarts", settings_.max_restarts()));
  settings_.set_max_failures_at_step(words.Number("failures-at-step", settings_.max_failures_at_step()));
  if (auto v = words.Text("restart-window")) *settings_.mutable_restart_window() = FromDuration(Duration(*v));
  if (auto v = words.Text("restart-backoff")) *settings_.mutable_restart_backoff() = FromDuration(Duration(*v));
  if (auto v = words.Text("node-cooldown")) *settings_.mutable_node_cooldown() = FromDuration(Duration(*v));
  if (auto v = words.Text("join-timeout")) *settings_.mutable_join_timeout() = FromDuration(Duration(*v));
  if (auto v = words.Text("last-call")) *settings_.mutable_last_call() = FromDuration(Duration(*v));
  if (auto v = words.Text("heartbeat-timeout")) *settings_.mutable_heartbeat_timeout() = FromDuration(Duration(*v));
  if (auto v = words.Text("grace")) *settings_.mutable_reconnect_grace() = FromDuration(Duration(*v));
}

// "join x/a" is node a of job x.
void Script::JoinOnce(Launcher* launcher, const Words& words, bool again) {
  if (!again) *launcher = Launcher{};
  Join& join = launcher->join;
  if (!again) {
    const std::vector<std::string> path = absl::StrSplit(words.plain[1], '/');
    join.set_job_id(path.size() == 2 ? path[0] : kHome);
    join.set_node_id(path.back());
    join.set_address(path.back());
    join.set_host(path.back());
    join.set_store_port(next_port_++);
    join.set_session_secret(std::string(kMinSecretBytes, 's'));
    *join.mutable_settings() = settings_;
  }
  join.set_incarnation(words.Number("inc", again ? static_cast<int>(join.incarnation()) + 1 : 1));
  join.set_slots(words.Number("slots", join.slots()));
  join.set_host(words.Text("host").value_or(join.host()));
  join.set_role(words.Text("role").value_or(join.role()));
  join.mutable_origin()->set_user(words.Text("user").value_or(join.origin().user()));
  join.set_topology(words.Text("topology").value_or(join.topology()));
  join.set_store_port(words.Number("port", join.store_port()));
  if (words.named.count("rank") > 0) join.set_node_rank(words.Number("rank", 0));
  join.mutable_origin()->set_in_process(words.Number("in-process", join.origin().in_process() ? 1 : 0) != 0);
  join.mutable_settings()->set_max_restarts(words.Number("restarts", join.settings().max_restarts()));
  join.set_in_touch(words.Number("in-touch", 0) != 0);
  join.mutable_origin()->set_server_node_ended(words.Number("server-node-ended", 0) != 0);
  if (auto timeout = words.Text("timeout")) *join.mutable_heartbeat_timeout() = FromDuration(Duration(*timeout));
  if (auto phase = words.Text("phase")) join.set_phase(PhaseOf(*phase));
  if (words.named.count("round") > 0) {
    if (!join.has_current()) {
      join.mutable_current()->set_group_world_size(1);
      join.mutable_current()->set_world_size(1);
      join.mutable_current()->set_role_world_size(1);
      join.mutable_current()->set_master_addr("master");
      join.mutable_current()->set_master_port(1);
    }
    join.mutable_current()->set_round(words.Number("round", 0));
  }
  if (auto group = words.Text("group"); group && join.has_current()) {
    const std::vector<std::string> parts = absl::StrSplit(*group, '/');
    join.mutable_current()->set_group_rank(Int(parts.front()));
    join.mutable_current()->set_role_world_size(Int(parts.back()));
    join.mutable_current()->set_group_world_size(Int(parts.back()));
    join.mutable_current()->set_world_size(Int(parts.back()));
  }
  if (words.Text("current") == "none") join.clear_current();
  TakeSurvivors(&join, words);
  launcher->connected = true;
  launcher->silent = false;
  Send(launcher, join);
}

void Script::TakeSurvivors(Join* join, const Words& words) {
  join->set_can_reform(words.Number("reform", join->can_reform()) != 0);
  if (auto keeps = words.Text("keeps")) {
    const std::vector<Survivor> survivors = *keeps == "none" ? std::vector<Survivor>() : SurvivorsOf(*keeps);
    join->mutable_survivors()->Assign(survivors.begin(), survivors.end());
  }
}

void Script::Fail(Launcher* launcher, const Words& words) {
  WorkerFailed failed = NewWorkerFailed(
      words.Number("round", launcher->join.has_current() ? static_cast<int>(launcher->join.current().round()) : 0),
      NewFailure());
  failed.mutable_failure()->set_host(launcher->join.host());
  failed.mutable_failure()->set_rank(words.Number("rank", 0));
  failed.mutable_failure()->set_local_rank(words.Number("local", 0));
  failed.mutable_failure()->set_pid(words.Number("pid", 77));
  failed.mutable_failure()->set_exit_code(words.Number("exit", 0));
  failed.mutable_failure()->set_signal(words.Number("signal", 0));
  failed.mutable_failure()->set_restartable(words.Number("restartable", 1) != 0);
  if (words.named.count("step") > 0) failed.mutable_failure()->set_step(words.Number("step", 0));
  failed.mutable_failure()->set_message(words.Text("message").value_or(""));
  launcher->join.set_phase(Join::PHASE_STOPPING);
  Send(launcher, failed);
}

void Script::ReportHang(Launcher* launcher, uint64_t round, const Words& words) {
  const std::vector<int32_t> ranks = RanksOf(words.Text("ranks"));
  const std::vector<std::string> text(words.plain.begin() + 2, words.plain.end());
  const std::string& command = words.plain[0];
  const Hang::Kind kind = command == "hang"       ? Hang::KIND_HUNG
                          : command == "continue" ? Hang::KIND_CONTINUED
                          : command == "replace"  ? Hang::KIND_REPLACE
                          : command == "mismatch" ? Hang::KIND_MISMATCH
                                                  : Hang::KIND_STRAGGLER;
  Send(launcher, NewHang(kind, round, absl::StrReplaceAll(absl::StrJoin(text, " "), {{" | ", "\n"}}), ranks));
}

void Script::Send(Launcher* launcher, LauncherMessage message) {
  const Join& join = launcher->join;
  if (const absl::Status status = Validate(&message); !status.ok()) {
    WriteTells();
    absl::StrAppend(&output_, join.node_id(), " sent an invalid message: ", status.message(), "\n");
    return Drop(launcher);
  }
  registry_->OnMessage(join.job_id(), join.node_id(), join.incarnation(), message, now_, &effects_);
}

void Script::Drop(Launcher* launcher) {
  const Join& join = launcher->join;
  launcher->connected = false;
  registry_->OnStreamClosed(join.job_id(), join.node_id(), join.incarnation(), now_, &effects_);
}

void Script::Advance(absl::Duration by) {
  const SteadyTime end = now_ + by;
  while (true) {
    const SteadyTime due = std::max(registry_->NextDeadline(), now_);
    if (due > end && next_beat_ > end) break;
    // A heartbeat that is due together with a deadline came just in time.
    if (next_beat_ <= due) {
      now_ = next_beat_;
      next_beat_ = now_ + kBeat;
      Beat();
    } else {
      now_ = due;
      registry_->OnDeadline(now_, &effects_);
    }
    Flush();
  }
  now_ = end;
}

void Script::Beat() {
  Effects acks;
  for (auto& [unused, launcher] : launchers_) {
    const Join& join = launcher.join;
    if (!launcher.connected || launcher.silent || join.origin().in_process()) continue;
    registry_->OnMessage(join.job_id(), join.node_id(), join.incarnation(), Heartbeat{}, now_, &acks);
  }
}

Script::Launcher* Script::Find(const std::string& job_id, const std::string& node_id, uint64_t incarnation) {
  for (auto& [unused, launcher] : launchers_) {
    const Join& join = launcher.join;
    if (join.job_id() == job_id && join.node_id() == node_id && join.incarnation() == incarnation) return &launcher;
  }
  return nullptr;
}

// The launcher's own reaction to a message.
void Script::Take(const Tell& tell) {
  Launcher* launcher = Find(tell.job_id, tell.node_id, tell.incarnation);
  if (launcher == nullptr) return;
  if (const auto* m = std::get_if<Assign>(&tell.message)) {
    *launcher->join.mutable_current() = m->assignment();
    launcher->join.set_phase(Join::PHASE_RUNNING);
    launcher->join.clear_survivors();
  }
  if (std::holds_alternative<StopRound>(tell.message)) {
    launcher->join.set_phase(Join::PHASE_STOPPING);
    launcher->join.clear_survivors();
  }
}

void Script::Take(const Close& close) {
  Launcher* launcher = Find(close.job_id, close.node_id, close.incarnation);
  if (launcher != nullptr) launcher->connected = false;
}

void Script::Take(const Report&) {}

void Script::Take(const Persist& persist) { records_[persist.record->job_id()] = *persist.record; }

void Script::Flush() {
  const std::string when = now_ == line_began_ ? "" : absl::StrCat("+", absl::FormatDuration(now_ - line_began_), " ");
  for (Effect& effect : effects_) {
    if (std::holds_alternative<Report>(effect) && !shows_events_) continue;
    if (Tell* told = std::get_if<Tell>(&effect); told != nullptr && !shows_end_command_) {
      if (Finish* finish = std::get_if<Finish>(&told->message)) finish->set_runs_end_command(false);
    }
    const auto* tell = std::get_if<Tell>(&effect);
    if (tell == nullptr || when != tells_when_ || (!tells_.empty() && !EqualButRanks(tells_[0], *tell))) WriteTells();
    if (tell == nullptr) {
      absl::StrAppend(&output_, when, Render(effect, kHome), "\n");
    } else {
      tells_.push_back(*tell);
      tells_when_ = when;
    }
    std::visit([this](const auto& e) { Take(e); }, effect);
  }
  effects_.clear();
  for (const v1::Job& view : registry_->ListJobs(now_)) {
    std::string state =
        absl::StrCat(view.job_id() == kHome ? "" : absl::StrCat(view.job_id(), " "), "is ", Name(StateOf(view)));
    std::string& shown = shown_[view.job_id()];
    if (state == shown) continue;
    WriteTells();
    absl::StrAppend(&output_, when, state, "\n");
    shown = std::move(state);
  }
}

void Script::WriteTells() {
  if (!tells_.empty()) absl::StrAppend(&output_, tells_when_, Render(tells_, kHome), "\n");
  tells_.clear();
}

}  // namespace ddprun::rendezvous

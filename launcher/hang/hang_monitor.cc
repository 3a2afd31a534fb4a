#include "launcher/hang/hang_monitor.h"

#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/hang/rank_state.h"
#include "rendezvous/core/fields.h"
#include "rendezvous/core/inspection.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

// Activity is measured over up to fifteen seconds: there is a sample every five.
constexpr size_t kMostSamples = 3;
// Processes of one worker that answer; further ones are not asked.
constexpr size_t kMostProbes = 16;
// A process is not asked before: PyTorch reads the counters without the lock under which a group's first collective
// adds them.
constexpr absl::Duration kSettle = absl::Seconds(5);

// Operators' questions at once; the server asks fewer.
constexpr size_t kMostInspections = 16;

// A collector that calls a callback must not be destroyed before it has returned.
void DestroyLater(std::shared_ptr<RankEvidence> collector, EventLoop* loop) {
  loop->Post([collector = std::move(collector)] {});
}

}  // namespace

HangMonitor::HangMonitor(const HangPolicy& policy, std::string host, int32_t slots, EventLoop* loop, Events events)
    : policy_(policy),
      host_(std::move(host)),
      loop_(loop),
      events_(std::move(events)),
      watch_({policy.fixed_limit > absl::ZeroDuration() ? std::optional(policy.fixed_limit) : std::nullopt}),
      workers_(slots) {}

HangMonitor::~HangMonitor() = default;

void HangMonitor::BeginRound(const rendezvous::Assignment& assignment) {
  if (!policy_.watch || (watches_ && assignment.round() == round_)) return;
  watches_ = true;
  round_ = assignment.round();
  base_rank_ = assignment.base_rank();
  store_port_ = assignment.master_port();
  all_.missing.clear();
  all_.found.Clear();
  collectives_.missing.clear();
  sampling_.reset();
  // Probes stay: survivors keep their processes.
  for (Worker& worker : workers_) {
    worker.counters.clear();
    worker.samples.clear();
  }
  watch_.StartRound({.round = round_,
                     .group_rank = assignment.group_rank(),
                     .nodes = assignment.group_world_size(),
                     .world_size = assignment.world_size(),
                     .base_rank = base_rank_,
                     .slots = static_cast<int32_t>(workers_.size()),
                     .host = host_},
                    SteadyNow());
}

void HangMonitor::OnProbe(int32_t local_rank, pid_t process, UniqueFd socket) {
  std::map<pid_t, Probe>& probes = workers_[local_rank].probes;
  if (probes.size() >= kMostProbes && probes.count(process) == 0) return;
  // A process that answers anew has been replaced by exec.
  probes[process] = {std::make_unique<WorkerProbe>(loop_, process, std::move(socket),
                                                   [this, local_rank, process] {
                                                     workers_[local_rank].probes.erase(process);
                                                     workers_[local_rank].counters.erase(process);
                                                   }),
                     SteadyNow()};
}

void HangMonitor::OnEnded(int32_t local_rank, const std::string& text) {
  if (!watches_) return;
  HangEffects effects;
  watch_.OnEnded(local_rank, text, SteadyNow(), &effects);
  Handle(effects);
}

void HangMonitor::OnNodeEvidence(const std::string& payload) {
  hang::v1::NodeEvidence evidence;
  if (!watches_ || !evidence.ParseFromString(payload) || evidence.round() != round_) return;
  HangEffects effects;
  watch_.OnNodeEvidence(evidence, SteadyNow(), &effects);
  Handle(effects);
}

void HangMonitor::OnDeadline(SteadyTime now) {
  if (now < NextDeadline()) return;
  if (!events_.round_lasts()) {
    watches_ = false;
    all_.missing.clear();
    collectives_.missing.clear();
    return watch_.EndRound();
  }
  HangEffects effects;
  watch_.OnDeadline(now, &effects);
  Handle(effects);
}

void HangMonitor::Handle(const HangEffects& effects) {
  for (const HangEffect& effect : effects) {
    if (std::holds_alternative<hang_effect::AskCounters>(effect)) {
      AskCounters();
    } else if (std::holds_alternative<hang_effect::Sample>(effect)) {
      Sample();
    } else if (std::holds_alternative<hang_effect::Collect>(effect)) {
      Collect(&all_, RankEvidence::Parts::kAll);
    } else if (std::holds_alternative<hang_effect::AskCollectives>(effect)) {
      Collect(&collectives_, RankEvidence::Parts::kCollectives);
    } else if (const auto* send = std::get_if<hang_effect::SendEvidence>(&effect)) {
      hang::v1::NodeEvidence evidence = send->evidence;
      evidence.set_sent_us(absl::ToUnixMicros(absl::Now()));
      events_.send_evidence(evidence.SerializeAsString());
    } else {
      rendezvous::Hang hang;
      if (const auto* report = std::get_if<hang_effect::Report>(&effect)) {
        hang = rendezvous::NewHang(rendezvous::Hang::KIND_HUNG, round_, report->text, report->ranks);
      } else if (const auto* replace = std::get_if<hang_effect::Replace>(&effect)) {
        if (!policy_.restart) continue;
        hang = rendezvous::NewHang(rendezvous::Hang::KIND_REPLACE, round_, replace->text, replace->ranks);
      } else if (const auto* mismatch = std::get_if<hang_effect::ReportMismatch>(&effect)) {
        hang = rendezvous::NewHang(rendezvous::Hang::KIND_MISMATCH, round_, mismatch->text, mismatch->ranks);
      } else if (const auto* stragglers = std::get_if<hang_effect::ReportStragglers>(&effect)) {
        hang = rendezvous::NewHang(rendezvous::Hang::KIND_STRAGGLER, round_, stragglers->text, stragglers->ranks);
      } else {
        hang = rendezvous::NewHang(rendezvous::Hang::KIND_CONTINUED, round_,
                                   std::get<hang_effect::Continued>(effect).text);
      }
      events_.report(hang);
    }
  }
}

void HangMonitor::Sample() {
  std::map<int32_t, pid_t> standing;
  for (int32_t rank = 0; rank < static_cast<int32_t>(workers_.size()); ++rank) {
    Worker& worker = workers_[rank];
    if (std::exchange(worker.moved, false)) {
      worker.samples.clear();
    } else if (const pid_t pid = events_.process_of(rank); pid != 0 && !worker.probes.empty()) {
      standing[rank] = pid;
    }
  }
  if (standing.empty() || sampling_) return;
  // A host may have many connections.
  using Samples = std::map<int32_t, ActivitySample>;
  sampling_ = std::make_unique<BackgroundCall<Samples>>(
      loop_,
      [standing] {
        const std::vector<TcpConnection> connections = ReadTcpConnections();
        Samples samples;
        for (const auto& [rank, pid] : standing) samples[rank] = SampleActivity(pid, connections);
        return samples;
      },
      [this](Samples samples) {
        for (auto& [rank, sample] : samples) {
          std::deque<ActivitySample>& last = workers_[rank].samples;
          last.push_back(std::move(sample));
          if (last.size() > kMostSamples) last.pop_front();
        }
        sampling_.reset();
      });
}

void HangMonitor::AskCounters() {
  for (int32_t rank = 0; rank < static_cast<int32_t>(workers_.size()); ++rank) {
    for (const auto& [process, probe] : workers_[rank].probes) {
      if (SteadyNow() - probe.since < kSettle) continue;
      probe.probe->Ask(WorkerProbe::Question::kCounters,
                       [this, rank, process = process](std::optional<std::string> answer) {
                         if (answer) OnCounters(rank, process, *answer);
                       });
    }
  }
}

void HangMonitor::OnCounters(int32_t local_rank, pid_t process, const std::string& answer) {
  Worker& worker = workers_[local_rank];
  const Counters counters = ParseCounters(answer);
  if (counters.text.empty() || worker.counters[process].text == counters.text) return;
  worker.counters[process] = counters;
  worker.moved = true;
  std::string all;
  bool waits = false;
  for (const auto& [pid, last] : worker.counters) {
    absl::StrAppend(&all, pid, " ", last.text, "\n");
    waits = waits || last.waits;
  }
  HangEffects effects;
  watch_.OnCounters(local_rank, all, waits, SteadyNow(), &effects);
  Handle(effects);
}

size_t HangMonitor::CountCollectives(int32_t local_rank, const std::function<void(std::optional<int64_t>)>& on_count) {
  size_t asked = 0;
  for (const auto& [process, probe] : workers_[local_rank].probes) {
    if (SteadyNow() - probe.since < kSettle) continue;
    ++asked;
    probe.probe->Ask(WorkerProbe::Question::kCounters, [on_count](const std::optional<std::string>& answer) {
      const Counters counters = answer ? ParseCounters(*answer) : Counters();
      on_count(counters.text.empty() ? std::nullopt : std::optional(counters.entered));
    });
  }
  return asked;
}

void HangMonitor::Collect(Collection* collection, RankEvidence::Parts parts) {
  if (!collection->missing.empty()) return;
  collection->found.Clear();
  for (int32_t rank = 0; rank < static_cast<int32_t>(workers_.size()); ++rank) {
    const pid_t pid = events_.process_of(rank);
    if (pid == 0) continue;
    collection->missing[rank] = CollectRank(
        rank, base_rank_ + rank, pid, parts,
        [this, collection, rank](hang::v1::Rank found) { OnCollected(collection, rank, std::move(found)); });
  }
  // All workers of this node have ended; others may wait for them.
  if (collection->missing.empty()) PassEvidence(collection);
}

std::unique_ptr<RankEvidence> HangMonitor::CollectRank(int32_t local_rank, int32_t rank, pid_t pid,
                                                       RankEvidence::Parts parts,
                                                       std::function<void(hang::v1::Rank)> on_done) {
  std::vector<WorkerProbe*> probes;
  for (const auto& [process, probe] : workers_[local_rank].probes) probes.push_back(probe.probe.get());
  const std::deque<ActivitySample>& samples = workers_[local_rank].samples;
  return std::make_unique<RankEvidence>(loop_, rank, pid, probes,
                                        samples.empty() ? std::nullopt : std::optional(samples.front()),
                                        std::move(on_done), parts);
}

void HangMonitor::OnCollected(Collection* collection, int32_t local_rank, hang::v1::Rank rank) {
  // Known without the native stack, which a busy process may not answer in time.
  if (absl::EndsWith(rank.process().target(), absl::StrCat(":", store_port_))) {
    rank.mutable_process()->set_target("the store");
  }
  *collection->found.add_ranks() = std::move(rank);
  DestroyLater(std::move(collection->missing[local_rank]), loop_);
  collection->missing.erase(local_rank);
  if (collection->missing.empty() && watches_) PassEvidence(collection);
}

void HangMonitor::PassEvidence(Collection* collection) {
  HangEffects effects;
  collection->found.set_sent_us(absl::ToUnixMicros(absl::Now()));
  if (collection == &all_) {
    watch_.OnOwnEvidence(collection->found, SteadyNow(), &effects);
  } else {
    watch_.OnCollectives(collection->found, SteadyNow(), &effects);
  }
  Handle(effects);
}

void HangMonitor::Inspect(const rendezvous::Inspect& inspect, const std::vector<int32_t>& local_ranks) {
  inspecting_.push_back({inspect});
  const auto inspecting = std::prev(inspecting_.end());
  const bool too_many = inspecting_.size() > kMostInspections;
  for (size_t i = 0; i < local_ranks.size() && !too_many; ++i) {
    const int32_t rank = inspect.ranks(static_cast<int>(i));
    if (const pid_t pid = events_.process_of(local_ranks[i]); pid != 0) {
      inspecting->missing[rank] =
          CollectRank(local_ranks[i], rank, pid, RankEvidence::Parts::kStacks,
                      [this, inspecting, pid](const hang::v1::Rank& found) { OnInspected(inspecting, pid, found); });
    } else {
      rendezvous::RankStacks& ended = inspecting->found.emplace_back();
      ended.set_rank(rank);
      ended.set_state("not running");
    }
  }
  if (inspecting->missing.empty()) SendStacks(inspecting);
}

void HangMonitor::OnInspected(std::list<Inspecting>::iterator inspecting, pid_t worker, const hang::v1::Rank& rank) {
  const RankState state(&rank, host_);
  rendezvous::RankStacks& stacks = inspecting->found.emplace_back();
  stacks.set_rank(rank.rank());
  stacks.set_pid(rank.has_process() ? rank.process().pid() : worker);
  stacks.set_state(rendezvous::FitText(state.Summary(), rendezvous::kMaxTextBytes));
  stacks.set_text(rendezvous::FitText(state.PythonStacks(), rendezvous::kMaxStackBytes));
  if (inspecting->asked.native()) {
    stacks.set_native(rendezvous::FitText(state.NativeStack(), rendezvous::kMaxNativeStackBytes));
  }
  DestroyLater(std::move(inspecting->missing[rank.rank()]), loop_);
  inspecting->missing.erase(rank.rank());
  if (inspecting->missing.empty()) SendStacks(inspecting);
}

void HangMonitor::SendStacks(std::list<Inspecting>::iterator inspecting) {
  rendezvous::SendInParts(inspecting->asked, std::move(inspecting->found), rendezvous::kMaxRanksInInspection,
                          &rendezvous::Inspection::add_ranks, events_.send_stacks);
  inspecting_.erase(inspecting);
}

}  // namespace ddprun::launcher

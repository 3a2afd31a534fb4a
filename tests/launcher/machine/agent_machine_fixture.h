#ifndef DDPRUN_TESTS_LAUNCHER_MACHINE_AGENT_MACHINE_FIXTURE_H_
#define DDPRUN_TESTS_LAUNCHER_MACHINE_AGENT_MACHINE_FIXTURE_H_

#include <gtest/gtest.h>
#include <signal.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "launcher/machine/agent_machine.h"
#include "rendezvous/core/heartbeats.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/phrases.h"
#include "tests/testing/text_proto.h"

// A launcher of two workers in a job of two nodes. Its effects are read as words.
namespace ddprun::launcher {

// The Welcome of a server that asks for a heartbeat in each `interval`; infinite: of one in this process.
inline rendezvous::Welcome WelcomeEvery(absl::Duration interval) {
  return rendezvous::NewWelcome(interval, interval * rendezvous::kBeatsPerTimeout);
}

// A few words for each effect, so that a test reads as a list of the launcher's actions; empty for log lines. With
// `workers`: only effects that concern workers, with their local ranks and survivors.
inline std::string Render(const AgentEffect& e, bool workers = false) {
  const auto unless_workers = [&](std::string text) { return workers ? "" : std::move(text); };
  const auto with = [&](const LocalRanks& ranks) {
    return workers ? absl::StrCat("[", absl::StrJoin(ranks, " "), "]") : "";
  };
  const auto survivors = [&](const auto& message) {
    if (!workers) return std::string();
    std::string text;
    for (const rendezvous::Survivor& s : message.survivors()) {
      absl::StrAppend(&text, " ", s.local_rank(), ":", s.has_committed_step() ? absl::StrCat(s.committed_step()) : "-");
    }
    return absl::StrCat(text, message.can_reform() ? " can" : " can't");
  };
  if (const auto* send = std::get_if<effect::Send>(&e)) {
    if (const auto* m = std::get_if<rendezvous::Join>(&send->message)) {
      static const char* const kPhases[] = {"", "idle", "running", "succeeded", "stopping"};
      return absl::StrCat(
          "join", unless_workers(absl::StrCat(" ", m->incarnation(), " ", kPhases[static_cast<int>(m->phase())])),
          survivors(*m));
    }
    if (std::holds_alternative<rendezvous::Heartbeat>(send->message)) return unless_workers("heartbeat");
    if (const auto* m = std::get_if<rendezvous::WorkerFailed>(&send->message)) {
      return absl::StrCat("failed ", m->round(), " rank ", m->failure().rank(),
                          rendezvous::IsStuckInKernel(m->failure()) ? " stuck" : "");
    }
    if (const auto* m = std::get_if<rendezvous::GroupSucceeded>(&send->message)) {
      return unless_workers(absl::StrCat("succeeded ", m->round()));
    }
    if (const auto* m = std::get_if<rendezvous::Ready>(&send->message)) {
      return absl::StrCat("ready ", m->left_round(), m->left_out() ? " left out" : "", survivors(*m));
    }
    if (const auto* m = std::get_if<rendezvous::Hang>(&send->message)) {
      return unless_workers(
          absl::StrCat("hang ", m->round(), m->kind() == rendezvous::Hang::KIND_CONTINUED ? " over" : ""));
    }
    if (const auto* m = std::get_if<rendezvous::Inspection>(&send->message)) return absl::StrCat("stacks ", m->id());
    return "leave";
  }
  if (std::holds_alternative<effect::ResetConnection>(e)) return unless_workers("reset");
  if (std::holds_alternative<effect::OpenStore>(e)) return "store";
  if (const auto* spawn = std::get_if<effect::SpawnWorkers>(&e)) {
    return absl::StrCat("spawn ", spawn->assignment.round(), with(spawn->ranks));
  }
  if (const auto* reform = std::get_if<effect::ReformWorkers>(&e)) {
    return absl::StrCat("re-form ", reform->assignment.round(), with(reform->ranks));
  }
  if (const auto* sent = std::get_if<effect::SendToWorkers>(&e)) {
    if (const auto* checkpoint = std::get_if<worker_contract::LinkCheckpointNow>(&sent->line)) {
      return absl::StrCat("checkpoint ", absl::FormatDuration(checkpoint->deadline), with(sent->ranks));
    }
    const auto& suspend = std::get<worker_contract::LinkSuspend>(sent->line);
    return absl::StrCat("suspend ", suspend.round, suspend.at_step_end ? " at step end" : "",
                        suspend.blame ? absl::StrCat(" blame ", *suspend.blame) : "", with(sent->ranks));
  }
  if (const auto* signal = std::get_if<effect::SignalWorkers>(&e)) {
    return signal->signal == SIGCONT ? "" : absl::StrCat("signal ", signal->signal, with(signal->ranks));
  }
  if (const auto* kill = std::get_if<effect::KillWorkers>(&e)) return absl::StrCat("kill", with(kill->ranks));
  if (const auto* stuck = std::get_if<effect::DescribeStuck>(&e)) return absl::StrCat("stuck", with(stuck->ranks));
  if (std::holds_alternative<effect::SweepOrphans>(e)) return unless_workers("sweep");
  if (std::holds_alternative<effect::ReportMissingRanks>(e)) return unless_workers("missing");
  if (const auto* hang = std::get_if<effect::ShowHang>(&e)) {
    return unless_workers(absl::StrCat("hang: ", hang->text));
  }
  if (const auto* hung = std::get_if<effect::ReplaceHung>(&e)) {
    return absl::StrCat("replace ", absl::StrJoin(hung->ranks, " "), ": ", hung->text, " / ", hung->stacks);
  }
  if (const auto* collect = std::get_if<effect::CollectStacks>(&e)) {
    return absl::StrCat("collect ", absl::StrJoin(collect->inspect.ranks(), " "), " as ",
                        absl::StrJoin(collect->ranks, " "));
  }
  if (const auto* exit = std::get_if<effect::Exit>(&e)) {
    return absl::StrCat("exit ", exit->code, exit->runs_end_command ? ", end command" : "");
  }
  return "";
}

// The first message of this type that is sent; null if there is none.
template <typename Message>
const Message* Sent(const AgentMachine::Effects& effects) {
  for (const AgentEffect& e : effects) {
    const auto* send = std::get_if<effect::Send>(&e);
    if (send == nullptr) continue;
    if (const auto* message = std::get_if<Message>(&send->message)) return message;
  }
  return nullptr;
}

class AgentMachineTest : public ::testing::Test {
 protected:
  AgentMachineTest() { Start(Settings()); }

  // Begins anew with these settings.
  void Start(AgentSettings settings) {
    effects_.clear();
    machine_.emplace(std::move(settings), now_);
    machine_->Start(now_, &effects_);
    EXPECT_EQ(Take(), "store");
  }

  static AgentSettings Settings() {
    AgentSettings settings;
    settings.join.set_job_id("job");
    settings.join.set_node_id("node");
    settings.join.set_host("here");
    settings.join.set_address("10.0.0.2");
    settings.join.set_slots(2);
    settings.join.mutable_settings()->set_max_nodes(2);
    settings.join.mutable_settings()->set_min_nodes(2);
    settings.server = "10.0.0.1:29400";
    settings.warning_signals = {SIGUSR1};
    return settings;
  }

  static rendezvous::Assignment Round(uint64_t round) {
    return TextProto<rendezvous::Assignment>(absl::StrCat("group_world_size: 2 world_size: 4 round: ", round));
  }

  static rendezvous::WorkerFailure Failure(int rank) {
    return TextProto(
        absl::StrCat("host: 'here' signal: 9 message: 'killed by SIGKILL' rank: ", rank, " local_rank: ", rank),
        rendezvous::NewFailure());
  }

  static rendezvous::Verdict Failed(int code) { return rendezvous::NewVerdict(false, "", Failure(0), code); }

  virtual std::string Word(const AgentEffect& e) const { return Render(e); }

  // The failure of a worker that is stuck in the kernel.
  static rendezvous::WorkerFailure Stuck(int rank) {
    rendezvous::WorkerFailure failure = Failure(rank);
    failure.set_restartable(false);
    failure.set_message("state D");
    return failure;
  }

  // Opens the store and describes stuck workers on request, as the shell does.
  std::string Take() {
    std::vector<std::string> words;
    printed_.clear();
    for (size_t i = 0; i < effects_.size(); ++i) {
      if (const auto* print = std::get_if<effect::Print>(&effects_[i])) absl::StrAppend(&printed_, print->text, "\n");
      if (std::string word = Word(effects_[i]); !word.empty()) words.push_back(std::move(word));
      if (store_opens_ && std::holds_alternative<effect::OpenStore>(effects_[i])) {
        machine_->OnStoreOpened({++port_}, now_, &effects_);
      }
      if (const auto* stuck = std::get_if<effect::DescribeStuck>(&effects_[i])) {
        const LocalRanks ranks = stuck->ranks;
        std::vector<rendezvous::WorkerFailure> failures;
        for (const int32_t rank : ranks) {
          if (have_processes_) failures.push_back(Stuck(rank));
        }
        machine_->OnStuck(ranks, failures, now_, &effects_);
      }
    }
    effects_.clear();
    return absl::StrJoin(words, ", ");
  }
  std::string Connect() {
    machine_->OnConnected("", now_, &effects_);
    return Take();
  }
  std::string Welcome() { return Say(WelcomeEvery(interval_)); }
  void Join() {
    Connect();
    Welcome();
  }
  std::string Say(rendezvous::ServerMessage message) {
    machine_->OnServerMessage(message, now_, &effects_);
    return Take();
  }
  std::string End(std::vector<WorkerEnd> ends) {
    machine_->OnWorkersEnded(ends, now_, &effects_);
    return Take();
  }
  std::string EndBadly() { return End({{0, Failure(0)}, {1, Failure(1)}}); }
  std::string Signal(int number, bool from_batch_system = false) {
    machine_->OnSignal({number, absl::StrCat("signal ", number), from_batch_system, absl::Seconds(61)}, now_,
                       &effects_);
    return Take();
  }
  std::string Lose(bool permanent = false) {
    machine_->OnDisconnected("connection refused", permanent, now_, now_, &effects_);
    return Take();
  }
  // Advances the time to the next deadline and handles it.
  std::string Due() {
    now_ = machine_->NextDeadline();
    machine_->OnDeadline(now_, &effects_);
    return Take();
  }
  void Run(uint64_t round = 1) {
    Join();
    ASSERT_EQ(Say(rendezvous::NewAssign(Round(round))), absl::StrCat("spawn ", round));
    ASSERT_EQ(machine_->state(), AgentMachine::State::kRunning);
  }

  SteadyTime now_ = SteadyTime::FromStart(absl::Seconds(1000));
  std::optional<AgentMachine> machine_;
  AgentMachine::Effects effects_;
  std::string printed_;
  int port_ = 0;
  bool store_opens_ = true;
  bool have_processes_ = true;                          // stuck workers
  absl::Duration interval_ = absl::InfiniteDuration();  // heartbeat interval; infinite: the server is in this process
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_MACHINE_AGENT_MACHINE_FIXTURE_H_

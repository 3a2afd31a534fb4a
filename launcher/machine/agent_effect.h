#ifndef DDPRUN_LAUNCHER_MACHINE_AGENT_EFFECT_H_
#define DDPRUN_LAUNCHER_MACHINE_AGENT_EFFECT_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/steady_time.h"
#include "launcher/workers/worker_set.h"
#include "rendezvous/core/messages.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {

// Actions that an AgentMachine requests from its shell.
namespace effect {
// Pass the message to the client.
struct Send {
  rendezvous::LauncherMessage message;
};
// The server is silent: abandon the stream and open another one.
struct ResetConnection {};
// Close the current store, if any, and listen on another port. Answered by AgentMachine::OnStoreOpened or OnFatal.
struct OpenStore {};
// The round begins: start these ranks. Answered by AgentMachine::OnSpawnFailed if that fails.
struct SpawnWorkers {
  rendezvous::Assignment assignment;
  LocalRanks ranks;
};
// Send the signal to the worker processes only, not to their children.
struct SignalWorkers {
  int signal;
  LocalRanks ranks;
};
// Notify connected workers over the worker link that they will be killed at `killed_at`.
struct NotifyStop {
  LocalRanks ranks;
  SteadyTime killed_at;
  std::string reason;
};
// Send the same line to each connected worker over the worker link. Connections that do not accept it are closed.
struct SendToWorkers {
  LocalRanks ranks;
  worker_contract::LauncherLinkMessage line;
};
// Resume these suspended workers in this round. SpawnWorkers follows for the other ranks, if there are any.
struct ReformWorkers {
  rendezvous::Assignment assignment;
  LocalRanks ranks;
};
// Send SIGKILL to their process groups.
struct KillWorkers {
  LocalRanks ranks;
};
// These workers are still alive long after SIGKILL. Answered by AgentMachine::OnStuck.
struct DescribeStuck {
  LocalRanks ranks;
};
// Kill processes that workers of the ended round left outside their process groups.
struct SweepOrphans {};
// Log which ranks have not connected to the store, if some have and others have not.
struct ReportMissingRanks {};
struct Print {
  LogLevel level;
  std::string text;
};
// A rank of the round hangs, or does so no longer: warn the user. The first line says who waits for whom.
struct ShowHang {
  std::string text;
};
// Kill these workers if --on-hang says so: they keep the others waiting.
struct ReplaceHung {
  LocalRanks ranks;
  std::string text;    // one line
  std::string stacks;  // lines of the report; may be empty
};
// Collect the stacks, output or usage of these workers, in the order of `inspect`. Answered by AgentMachine::OnStacks.
struct CollectStacks {
  rendezvous::Inspect inspect;
  LocalRanks ranks;
};
// Show on the terminal what the launcher waits for. The next line replaces it; an empty text clears it.
struct ShowStatus {
  std::string text;
};
// Exit the launcher. `verdict` is set if the server sent one; `siblings` are other failures on this node in the same
// round.
struct Exit {
  int code;
  std::optional<rendezvous::Verdict> verdict;
  std::vector<rendezvous::WorkerFailure> siblings;
  std::string hang = {};          // first line of the hang that was reported and not over
  std::string reason = {};        // one sentence, the verdict's or this launcher's own
  bool runs_end_command = false;  // this node, and no other, runs the command for the job's end (protocol 5)
};
}  // namespace effect

using AgentEffect =
    std::variant<effect::Send, effect::ResetConnection, effect::OpenStore, effect::SpawnWorkers, effect::SignalWorkers,
                 effect::NotifyStop, effect::SendToWorkers, effect::ReformWorkers, effect::KillWorkers,
                 effect::DescribeStuck, effect::SweepOrphans, effect::ReportMissingRanks, effect::Print,
                 effect::ShowHang, effect::ReplaceHung, effect::CollectStacks, effect::ShowStatus, effect::Exit>;
using AgentEffects = std::vector<AgentEffect>;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_AGENT_EFFECT_H_

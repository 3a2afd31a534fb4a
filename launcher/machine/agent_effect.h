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

// What an AgentMachine tells its shell to do.
namespace effect {
// Give the message to the client.
struct Send {
  rendezvous::LauncherMessage message;
};
// The server is silent: give up the stream and open another.
struct ResetConnection {};
// Close the store there is, if any, and listen on another port. AgentMachine::OnStoreOpened or OnFatal answers.
struct OpenStore {};
// The round begins: start these ranks. AgentMachine::OnSpawnFailed if that can't be done.
struct SpawnWorkers {
  rendezvous::Assignment assignment;
  LocalRanks ranks;
};
// To the workers themselves, not to their children.
struct SignalWorkers {
  int signal;
  LocalRanks ranks;
};
// Over the worker link, to those that are connected: they will be killed then.
struct TellStop {
  LocalRanks ranks;
  SteadyTime killed_at;
  std::string reason;
};
// Over the worker link, to connected workers: the same line to each. A connection that does not take it is closed.
struct TellWorkers {
  LocalRanks ranks;
  worker_contract::LauncherLine line;
};
// These suspended workers go on in this round. SpawnWorkers follows for the others, or for none.
struct ReformWorkers {
  rendezvous::Assignment assignment;
  LocalRanks ranks;
};
// SIGKILL to their process groups.
struct KillWorkers {
  LocalRanks ranks;
};
// Kill what workers of the ended round left behind outside their process groups.
struct SweepOrphans {};
// Say which ranks have not come to the store, if some have and others have not.
struct ReportMissingRanks {};
struct Print {
  LogLevel level;
  std::string text;
};
// What the launcher waits for: a line on a terminal that the next one replaces; empty ends it.
struct ShowStatus {
  std::string text;
};
// The end. `verdict` is set if the server gave one; `siblings` failed on this node in the same round.
struct Exit {
  int code;
  std::optional<rendezvous::Verdict> verdict;
  std::vector<rendezvous::WorkerFailure> siblings;
};
}  // namespace effect

using AgentEffect =
    std::variant<effect::Send, effect::ResetConnection, effect::OpenStore, effect::SpawnWorkers, effect::SignalWorkers,
                 effect::TellStop, effect::TellWorkers, effect::ReformWorkers, effect::KillWorkers,
                 effect::SweepOrphans, effect::ReportMissingRanks, effect::Print, effect::ShowStatus, effect::Exit>;
using AgentEffects = std::vector<AgentEffect>;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_AGENT_EFFECT_H_

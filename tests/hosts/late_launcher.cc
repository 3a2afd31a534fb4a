// One node of a job of two whose endpoint's name may appear late, as in Kubernetes: late_launcher ENDPOINT SECONDS
#include <signal.h>
#include <stdlib.h>

#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "launcher/agent.h"
#include "launcher/config/launch_config.h"
#include "launcher/process/guard.h"
#include "launcher/process/signal_source.h"

namespace ddprun::launcher {
namespace {

int Main(char** argv) {
  InitLog("ddprun", LogLevel::kWarning);
  LaunchConfig config;
  config.job_id = "job";
  config.settings.set_min_nodes(2);
  config.settings.set_max_nodes(2);
  *config.settings.mutable_join_timeout() = FromDuration(absl::Seconds(atoi(argv[2])));
  config.server_place = ServerPlace::kElsewhere;
  config.endpoint = {argv[1], kDefaultRdzvPort};
  config.cluster.endpoint_appears_late = true;
  config.options.rdzv_conf.reconnect_timeout = absl::Seconds(30);
  config.command.programs = {"true"};
  config.entrypoint = "true";
  config.options.signals_to_handle = {SIGTERM};
  const std::string id = RandomId();
  absl::StatusOr<Guard> guard = Guard::Start(id);
  absl::StatusOr<std::unique_ptr<SignalSource>> signals = SignalSource::Create({SIGTERM, SIGCHLD});
  int code;
  {
    Agent agent({std::move(config), id, &*guard}, *std::move(signals));
    code = agent.Run();
  }
  guard->Dismiss();
  return code;
}

}  // namespace
}  // namespace ddprun::launcher

int main(int, char** argv) { return ddprun::launcher::Main(argv); }

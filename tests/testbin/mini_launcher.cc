// `mini_launcher N PROGRAM [ARGUMENT...]`: a minimal launcher with a guard and N workers, which forwards SIGTERM and
// sweeps orphans at the end. Prints "guard PID", "launcher PID" and "started"; exits with the code of the first worker
// that failed, or 0.
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/text.h"
#include "launcher/io/event_loop.h"
#include "launcher/process/child_watch.h"
#include "launcher/process/guard.h"
#include "launcher/process/orphan_sweeper.h"
#include "launcher/process/signal_source.h"
#include "launcher/process/spawn_process.h"
#include "worker_contract/environment.h"

using namespace ddprun::launcher;  // NOLINT: a test program

int main(int argc, char** argv) {
  Guard::RunIfAsked(argc, argv);
  if (argc < 3) return 99;
  const std::string id = ddprun::RandomId();
  auto guard = Guard::Start(id);
  auto loop = EventLoop::Create();
  auto signals = SignalSource::Create({SIGTERM});
  if (!guard.ok() || !signals.ok() || !loop.ok() || !BecomeSubreaper().ok()) return 98;

  int exit_code = 0;
  ChildWatch* watch_pointer = nullptr;
  auto watch = ChildWatch::Create(loop->get(), [&](std::vector<ProcessEnd> ends) {
    for (const ProcessEnd& end : ends) {
      if (exit_code == 0) exit_code = end.ExitCode();
    }
    if (watch_pointer->empty()) (*loop)->Quit();
  });
  if (!watch.ok()) return 98;
  watch_pointer = watch->get();
  if (!(*signals)
           ->Attach(loop->get(),
                    [&](const ReceivedSignal& signal) {
                      for (const pid_t pid : (*watch)->pids()) (*watch)->Signal(pid, signal.number);
                    })
           .ok()) {
    return 98;
  }

  if (!guard->Watch(loop->get()).ok()) return 98;

  SpawnRequest request;
  request.program = argv[2];
  request.argv.assign(argv + 2, argv + argc);
  const char* outer = getenv(ddprun::worker_contract::kLauncherId);
  setenv(ddprun::worker_contract::kLauncherId, LauncherIdForWorkers(outer ? outer : "", id).c_str(), 1);
  request.environment = OwnEnvironment();
  printf("guard %d\nlauncher %d\n", guard->pid(), getpid());
  fflush(stdout);
  for (int i = 0; i < atoi(argv[1]); ++i) {
    auto child = CreateChild(request);
    if (!child.ok()) {
      fprintf(stderr, "%s\n", std::string(child.status().message()).c_str());
      return 97;
    }
    MarkProcess(child->pid, id);
    child->gate.Open();
    if (!(*watch)->Watch(*std::move(child)).ok()) return 96;
  }
  printf("started\n");
  fflush(stdout);
  (*loop)->Run();
  guard->Unwatch();
  while (!KillOrphans({guard->pid()}).empty()) poll(nullptr, 0, 1);
  guard->Dismiss();
  return exit_code;
}

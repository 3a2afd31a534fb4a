#ifndef DDPRUN_LAUNCHER_FORK_SERVER_FORK_SERVER_H_
#define DDPRUN_LAUNCHER_FORK_SERVER_FORK_SERVER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/spawn_process.h"
#include "launcher/os/start_gate.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

// A process that forks workers, which therefore start without loading again what it has loaded. For workers in Python
// one that imports modules once (fork_server.py, which has the protocol); for a program that links the worker runtime
// the program itself, which waits in RunWorker (worker_contract/fork_protocol.h). Workers become children of this
// process, which must be a subreaper, and are like those of CreateChild: own session, parent-death signal, limits,
// signals, descriptors, and a gate that they wait at before they run anything of their own. Requests made while the
// modules are imported wait for that. A server whose modules have changed on disk since then is replaced.
//
// Belongs to the loop's thread, which must be the main thread (see CreateChild).
class ForkServer {
 public:
  struct Settings {
    std::vector<std::string>
        worker_argv;          // the interpreter's path, its flags, the script or -m and a module, arguments
    bool is_program = false;  // the worker runtime's, see LinksWorkerRuntime; then the next three mean nothing
    size_t script = 0;        // the index of the script's or module's name in it
    bool is_module = false;
    std::string modules;                   // MODULE,... to import; "auto": the imports that the script begins with
    std::vector<std::string> environment;  // that the modules are imported with, see CommonEnvironment
    std::vector<int> ignored_signals;
    // An import that has not computed nor read for so long hangs. A program has to come to RunWorker within it.
    absl::Duration stall_limit = absl::Seconds(30);
  };
  // One worker to fork. The caller keeps ownership of the descriptors, which must stay open until it is started; -1:
  // those of this process.
  struct Request {
    std::vector<std::string> environment;  // the complete one
    int stdout_fd = -1;
    int stderr_fd = -1;
    std::vector<int> cpus;  // to which it is bound; empty: to none
  };
  // Of one request; never 0.
  using Ticket = int64_t;
  struct Events {
    // The worker exists, and waits for its gate to be opened.
    std::function<void(Ticket ticket, Child child)> on_started;
    // There is no server any more, and these requests are not going to be served. Not OK: why. OK: there was nothing to
    // import. Never called from within Fork.
    std::function<void(const absl::Status& why, const std::vector<Ticket>& not_started)> on_ended;
  };

  // Starts the interpreter. Errors: those of CreateChild, or that descriptors have run out.
  static absl::StatusOr<std::unique_ptr<ForkServer>> Start(Settings settings, EventLoop* loop, Events events);
  // Kills the server. Its workers go on.
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  // Asks for these workers; the answer has one ticket for each.
  std::vector<Ticket> Fork(const std::vector<Request>& requests);
  // Takes a request back. False if it is too late: its worker is about to be started.
  bool Cancel(Ticket ticket);

  // The server's process, a child of this one: keep it out of SweepOrphans. 0: there is none.
  pid_t pid() const { return server_.pid > 0 ? server_.pid : 0; }

 private:
  struct Waiting {
    Request request;
    bool asked = false;  // the server has been told
    StartGate gate;      // if it has
  };

  ForkServer(Settings settings, EventLoop* loop, Events events);
  absl::Status StartServer();
  absl::StatusOr<Child> SpawnInterpreter(int socket);
  absl::StatusOr<Child> SpawnProgram(int socket);
  absl::Status Died();
  absl::Status TellSetup();
  void AskForWaiting();
  absl::Status Ask(Ticket ticket, Waiting* waiting);
  // Does not wait. ABORTED: the socket is full.
  absl::Status SendMessage(absl::string_view message, const std::vector<int>& fds);
  void OnReadable();
  // False if there is no message, or no server, any more.
  bool ReadMessage();
  void OnMessage(const std::vector<std::string>& fields);
  void OnStarted(Ticket ticket, pid_t pid);
  // The server has ended and says that another one can be started.
  void StartAgain();
  void End(absl::Status why);
  void KillServer();
  void WatchProgress();
  void OnProgressTimer();

  Settings settings_;
  EventLoop* const loop_;
  const Events events_;
  std::string left_out_;  // MODULE,... that can't be imported ahead
  Child server_;
  UniqueFd channel_;
  UniqueFd timer_;  // while a server owes us an answer
  std::string progress_;
  bool ready_ = false;
  bool ended_ = false;
  Ticket last_ticket_ = 0;
  std::map<Ticket, Waiting> waiting_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once this object is gone
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_FORK_SERVER_FORK_SERVER_H_

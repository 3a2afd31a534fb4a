#ifndef DDPRUN_LAUNCHER_FORK_SERVER_FORK_SERVER_H_
#define DDPRUN_LAUNCHER_FORK_SERVER_FORK_SERVER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/worker_command.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/process/spawn_process.h"

namespace ddprun::launcher {

// A process that forks workers, which therefore start without repeating the work of loading. For Python workers it is
// an interpreter that imports modules once (fork_server.py, which describes the protocol); for a program that links the
// worker runtime it is the program itself, which waits in RunWorker (worker_contract/fork_protocol.h). Workers become
// children of this process, which must be a subreaper, and have the same properties as those of CreateChild: own
// session, parent-death signal, limits, signals, descriptors, and a gate at which they wait before running user code.
// Requests made during the imports are queued. A server whose modules have changed on disk since then is replaced.
//
// Belongs to the loop's thread, which must be the main thread (see CreateChild).
class ForkServer {
 public:
  struct Settings {
    std::vector<std::string>
        worker_argv;  // path of the interpreter, its flags, the script or -m and a module, arguments
    std::optional<ForkedServer> running;  // the server, a program; if it ends, it is not replaced
    bool is_program = false;  // links the worker runtime, see IsLinkedWithWorkerRuntime; then the next three are unused
    size_t script = 0;        // index of the script's or module's name in worker_argv
    bool is_module = false;
    std::string modules;                   // MODULE,... to import; "auto": the leading imports of the script
    std::vector<std::string> environment;  // environment during the imports, see CommonEnvironment
    std::vector<int> ignored_signals;
    // An import that has used no CPU and read no data for this long hangs. A program must reach RunWorker within this
    // time.
    absl::Duration stall_limit = absl::Seconds(30);
  };
  // One worker to fork. The caller keeps ownership of the descriptors, which must stay open until the worker is
  // started; -1: those of this process.
  struct Request {
    std::vector<std::string> environment;  // the complete environment
    int stdout_fd = -1;
    int stderr_fd = -1;
    std::vector<int> cpus;  // CPUs that it is bound to; empty: unbound
  };
  // Identifies a request; never 0.
  using Ticket = int64_t;
  struct Events {
    // The worker exists, and waits for its gate to be opened.
    std::function<void(Ticket ticket, Child child)> on_started;
    // The server has ended, and these requests will not be served. `why` is OK if there was nothing to import. Never
    // called from within Fork.
    std::function<void(const absl::Status& why, const std::vector<Ticket>& not_started)> on_ended;
  };

  // Starts the interpreter or program. Errors: those of CreateChild, or that no descriptor is left.
  static absl::StatusOr<std::unique_ptr<ForkServer>> Start(Settings settings, EventLoop* loop, Events events);
  // Kills the server. Its workers continue.
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  // Requests these workers; returns one ticket for each.
  std::vector<Ticket> Fork(const std::vector<Request>& requests);
  // Cancels a request. False if it is too late because the worker is about to be started.
  bool Cancel(Ticket ticket);

  // Pid of the server, a child of this process: exclude it from KillOrphans. 0: there is none.
  pid_t pid() const { return server_.pid > 0 ? server_.pid : 0; }

 private:
  struct Waiting {
    Request request;
    bool asked = false;  // sent to the server
    StartGate gate;      // valid once sent
  };

  ForkServer(Settings settings, EventLoop* loop, Events events);
  absl::Status StartServer();
  absl::Status SpawnServer();
  absl::StatusOr<Child> SpawnInterpreter(int socket);
  absl::StatusOr<Child> SpawnProgram(int socket);
  absl::Status Died();
  absl::Status SendSetup();
  void SendPendingRequests();
  absl::Status Ask(Ticket ticket, Waiting* waiting);
  // Does not block. ABORTED: the socket is full.
  absl::Status SendMessage(absl::string_view message, const std::vector<int>& fds);
  void OnReadable();
  // False if no message is left, or the server has ended.
  bool ReadMessage();
  void OnMessage(const std::vector<std::string>& fields);
  void OnStarted(Ticket ticket, pid_t pid);
  // Replaces the server, which has ended with the request to start another one.
  void ReplaceServer();
  void End(absl::Status why);
  void KillServer();
  void WatchProgress();
  void OnProgressTimer();

  Settings settings_;
  EventLoop* const loop_;
  const Events events_;
  std::string left_out_;  // MODULE,... that can't be imported in advance
  Child server_;
  UniqueFd channel_;
  UniqueFd timer_;  // armed while an answer of the server is pending
  std::string progress_;
  bool ready_ = false;
  bool ended_ = false;
  Ticket last_ticket_ = 0;
  std::map<Ticket, Waiting> waiting_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once this object is gone
};

// The interpreter's program, of several files that BUILD embeds.
extern const char kForkServerSource[];

// Changes that turn the environment `from` into `to`: "NAME=value" sets a variable, "NAME" removes it.
std::vector<std::string> EnvironmentChanges(absl::Span<const std::string> from, absl::Span<const std::string> to);

// True if this file is a program that contains the worker runtime, and can therefore fork workers (--preload). Reads
// the whole file. Other programs must not be started without a rank, because they would do their work.
bool IsLinkedWithWorkerRuntime(const std::string& file);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_FORK_SERVER_FORK_SERVER_H_

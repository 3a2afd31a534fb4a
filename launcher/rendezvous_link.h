#ifndef DDPRUN_LAUNCHER_RENDEZVOUS_LINK_H_
#define DDPRUN_LAUNCHER_RENDEZVOUS_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/config/launch_config.h"
#include "launcher/host_addresses.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "rendezvous/client/client.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/event_log.h"
#include "rendezvous/server/server.h"

namespace ddprun::launcher {

// Watches the process that hosts the rendezvous server, if it is another process on this machine, so that a launcher
// that takes over the server can be certain that the process, and with it the node that it runs, has ended (protocol
// 4.4). Belongs to one thread.
class ServerProcess {
 public:
  // Time that HasEnded waits for a process whose connections the kernel has already closed.
  static constexpr absl::Duration kExitTime = absl::Milliseconds(50);

  // Call with the name of the process in which the server runs (ProcessName). Empty: unknown, or not in a launcher.
  void OnServer(const std::string& process_name);
  // Call when the server has assigned this round.
  void OnRound(uint64_t round);

  // True if the process that assigned this round has certainly ended. May wait for kExitTime.
  bool HasEnded(uint64_t round) const;

 private:
  std::shared_ptr<const UniqueFd> present_;   // pidfd of the current server; null: unknown
  std::shared_ptr<const UniqueFd> of_round_;  // pidfd of the server that assigned round_
  uint64_t round_ = 0;
};

// This launcher's connection to the rendezvous server, which it may host itself. Depending on `config`, the server is
// in this process (single-node job), or at the endpoint, hosted by this launcher if that is an address of this host
// where nothing listens yet. ddprunctl on this host finds the server through the link. Belongs to the loop's thread.
class RendezvousLink {
 public:
  // Called on the loop's thread.
  using Handler = std::function<void(const rendezvous::ClientEvent&)>;

  // Starts to connect. `config` and `loop` must outlive the result. Errors: the server could not listen.
  static absl::StatusOr<std::unique_ptr<RendezvousLink>> Open(const LaunchConfig* config, HostAddresses host,
                                                              EventLoop* loop, Handler handler);
  ~RendezvousLink();

  void Send(rendezvous::LauncherMessage message);
  void Reset() { client_->Reset(); }

  // Text for messages if this launcher hosts the server for other processes: "this node serves at 10.0.0.5:29400"; else
  // empty.
  const std::string& serving() const { return serving_; }

  // Called when the server is lost: hosts it here if this launcher may, the endpoint is an address of this host, and
  // nothing listens there. The new server recovers from the launchers' reports.
  void TakeOver();

  // The remaining methods end a launcher, in this order. Disconnect closes its own connection; Send must not be called
  // afterwards.
  void Disconnect();
  // True if this launcher hosts the server for other processes. REQUIRED by the next three methods.
  bool Hosts() const { return server_ != nullptr; }
  // Blocks until all other launchers have received their last message, at most until `deadline`, and until leaving
  // launchers have no workers left, at most until `leavers_deadline`; or until StopLingering. Thread-safe.
  void LingerForOthers(SteadyTime deadline, SteadyTime leavers_deadline);
  void StopLingering();
  // Number of launchers of other nodes connected to this server.
  int Others() const { return driver_->Launchers(); }
  void Close();

  // Name of the server for messages.
  static std::string ServerName(const LaunchConfig& config);

 private:
  RendezvousLink(const LaunchConfig* config, HostAddresses host, EventLoop* loop, Handler handler);
  // ALREADY_EXISTS: the endpoint's address is in use.
  absl::Status Host();
  void Connect();
  rendezvous::Client::Handler ForwardToLoop();
  // Answers ddprunctl on this host (base/local_jobs.h) from now on.
  void ListenForLocalJobs();
  void OnLocalQuestion();
  // Lets ddprunctl call the server if it is only in this process.
  absl::Status HostLocally();
  // Addresses at which ddprunctl on this host reaches the server.
  std::string LocalServer() const;
  void Handle(const rendezvous::ClientEvent& event);

  const LaunchConfig* const config_;
  const HostAddresses host_;
  EventLoop* const loop_;
  const Handler handler_;
  bool hosting_ = false;
  ServerProcess server_process_;  // process of the lost server, if this launcher took over
  std::string serving_;
  uint64_t generation_ = 0;      // generation of client_; events of older clients are dropped
  rendezvous::EventLog events_;  // events of the hosted server
  std::unique_ptr<rendezvous::Driver> driver_;
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<rendezvous::Server> local_server_;  // serves driver_ to callers with local_token_ if server_ is null
  std::string local_token_;
  UniqueFd local_jobs_;
  std::unique_ptr<rendezvous::Client> client_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_RENDEZVOUS_LINK_H_

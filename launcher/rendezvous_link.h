#ifndef DDPRUN_LAUNCHER_RENDEZVOUS_LINK_H_
#define DDPRUN_LAUNCHER_RENDEZVOUS_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/core/launch_config.h"
#include "launcher/os/event_loop.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/client/client.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/server.h"

namespace ddprun::launcher {

// This host as the job's other nodes are to see it.
struct HostPlace {
  std::string address;    // by which other nodes reach it: --local-addr, else that of the route to the server
  bool may_host = false;  // the endpoint is of this host: the server may live in this launcher
  std::vector<std::string> serving;  // where that would listen
  std::string note;                  // what is unusual about it: "node1 is 127.0.1.1 here"; may be empty
};

// Looks up the names that `config` gives. Waits for name servers for as long as the system's settings allow: not for
// the loop's thread. Everything later is done with these addresses, so that no name server can hold up a job that runs.
// NOT_FOUND: a name is not known; UNAVAILABLE: there is no route to the endpoint. The text says what to set.
absl::StatusOr<HostPlace> LookUpHostPlace(const LaunchConfig& config);

// This launcher's way to the rendezvous server, which it may host itself: as `config` says, in its own process for a
// job of one node, at the endpoint if that is an address of this host on which nobody listens yet, else elsewhere.
// Belongs to the loop's thread.
class RendezvousLink {
 public:
  // On the loop's thread.
  using Handler = std::function<void(const rendezvous::ClientEvent&)>;

  // Starts to connect. `config` and `loop` must outlive the result. Errors are those of hosting: no port, with the
  // reason.
  static absl::StatusOr<std::unique_ptr<RendezvousLink>> Open(const LaunchConfig* config, HostPlace host,
                                                              EventLoop* loop, Handler handler);
  ~RendezvousLink();

  void Send(rendezvous::LauncherMessage message) { client_->Send(std::move(message)); }
  void Reset() { client_->Reset(); }

  // For people, if it hosts the server for other processes: "this node serves at 10.0.0.5:29400"; else empty.
  const std::string& serving() const { return serving_; }

  // For the time when there is no server: hosts it here if this launcher may, the endpoint is of this host, and
  // nobody else listens there by now. The server goes on from what launchers report to it.
  void TakeOver();

  // Says goodbye. A host stays until all launchers of other processes have fetched their last message, but not
  // beyond `deadline`, and until those that leave as well have no workers any more, but not beyond `leavers_deadline`.
  void Close(SteadyTime deadline, SteadyTime leavers_deadline);

  // The server's name for messages.
  static std::string ServerName(const LaunchConfig& config);

 private:
  RendezvousLink(const LaunchConfig* config, HostPlace host, EventLoop* loop, Handler handler);
  // ALREADY_EXISTS: somebody listens at the endpoint.
  absl::Status Host();
  void Connect();
  rendezvous::Client::Handler ForwardToLoop();

  const LaunchConfig* const config_;
  const HostPlace host_;
  EventLoop* const loop_;
  const Handler handler_;
  bool hosting_ = false;
  std::string serving_;
  uint64_t generation_ = 0;  // of client_: events of an older one are dropped
  std::unique_ptr<rendezvous::Driver> driver_;
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<rendezvous::Client> client_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_RENDEZVOUS_LINK_H_

#ifndef DDPRUN_LAUNCHER_RENDEZVOUS_LINK_H_
#define DDPRUN_LAUNCHER_RENDEZVOUS_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/core/launch_config.h"
#include "launcher/os/event_loop.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/client/client.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/server.h"

namespace ddprun::launcher {

// This launcher's way to the rendezvous server, which it may host itself: as `config` says, in its own process for a
// job of one node, at the endpoint if that is an address of this host on which nobody listens yet, else elsewhere.
// Belongs to the loop's thread.
class RendezvousLink {
 public:
  // On the loop's thread.
  using Handler = std::function<void(const rendezvous::ClientEvent&)>;

  // The address by which other nodes reach this one: --local-addr, else that of the route to the server.
  // NOT_FOUND: a name is not known; UNAVAILABLE: there is no route to the endpoint. The text says what to set.
  static absl::StatusOr<std::string> LocalAddress(const LaunchConfig& config);

  // Starts to connect. `config` and `loop` must outlive the result. Errors are those of hosting: no port, with the
  // reason.
  static absl::StatusOr<std::unique_ptr<RendezvousLink>> Open(const LaunchConfig* config,
                                                              const std::string& local_address, EventLoop* loop,
                                                              Handler handler);
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
  RendezvousLink(const LaunchConfig* config, std::string local_address, EventLoop* loop, Handler handler);
  // ALREADY_EXISTS: somebody listens at the endpoint.
  absl::Status Host();
  void Connect();
  rendezvous::Client::Handler ForwardToLoop();

  const LaunchConfig* const config_;
  const std::string local_address_;
  EventLoop* const loop_;
  const Handler handler_;
  const bool may_host_;
  bool hosting_ = false;
  std::string serving_;
  uint64_t generation_ = 0;  // of client_: events of an older one are dropped
  std::unique_ptr<rendezvous::Driver> driver_;
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<rendezvous::Client> client_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_RENDEZVOUS_LINK_H_

#ifndef DDPRUN_LAUNCHER_PREFLIGHT_ADDRESS_PROBE_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_ADDRESS_PROBE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/io/event_loop.h"
#include "proto/hosts.pb.h"
#include "rendezvous/server/listen.h"

// Finds out by trial at which addresses a host can be reached from others: it listens on all of them, and the others
// connect to each.
namespace ddprun::launcher {

// Listens on all addresses of this host, and sends a word to each client, so that another program, or another host with
// the same private address, is not mistaken for it. Belongs to the loop's thread.
class ProbedListener {
 public:
  // ResourceExhausted: no port of the range is free.
  static absl::StatusOr<std::unique_ptr<ProbedListener>> Open(EventLoop* loop,
                                                              const hosts::v1::HostCommand::Listen& request);
  ~ProbedListener() { loop_->RemoveFd(fd()); }
  ProbedListener(const ProbedListener&) = delete;
  ProbedListener& operator=(const ProbedListener&) = delete;

  hosts::v1::HostReport::Listening Describe() const;
  // The socket, which becomes that of the host's rendezvous server, so that no other process gets the port meanwhile.
  int fd() const { return sockets_.fds.front(); }

 private:
  ProbedListener(EventLoop* loop, rendezvous::Listeners sockets, std::string word)
      : loop_(loop), sockets_(std::move(sockets)), word_(std::move(word)) {}
  void Greet();

  EventLoop* const loop_;
  const rendezvous::Listeners sockets_;
  const std::string word_;
};

// Connects to all addresses at once and waits for the word, a few seconds at most. Returns for each why it failed;
// empty: it did not.
std::vector<std::string> TryToReach(const hosts::v1::HostCommand::Reach& request);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_ADDRESS_PROBE_H_

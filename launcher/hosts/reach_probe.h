#ifndef DDPRUN_LAUNCHER_HOSTS_REACH_PROBE_H_
#define DDPRUN_LAUNCHER_HOSTS_REACH_PROBE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/os/event_loop.h"
#include "launcher/os/unique_fd.h"
#include "proto/hosts.pb.h"

// Finds out at which addresses one host can be reached from others, before the launchers rely on one.
namespace ddprun::launcher {

// Listens at all addresses of this host, and sends a word to each client, so that another program, or
// another host with the same private address, is not mistaken for it. Belongs to the loop's thread.
class ReachListener {
 public:
  // ResourceExhausted: no port of the range is free.
  static absl::StatusOr<std::unique_ptr<ReachListener>> Open(EventLoop* loop,
                                                             const hosts::v1::HostCommand::Listen& request);
  ~ReachListener();
  ReachListener(const ReachListener&) = delete;
  ReachListener& operator=(const ReachListener&) = delete;

  hosts::v1::HostReport::Listening Describe() const;

 private:
  ReachListener(EventLoop* loop, UniqueFd socket, int port, std::string word)
      : loop_(loop), socket_(std::move(socket)), port_(port), word_(std::move(word)) {}
  void OnConnection();

  EventLoop* const loop_;
  const UniqueFd socket_;
  const int port_;
  const std::string word_;
};

// Connects to all addresses at once and waits for the word, a few seconds at most. Returns for each why it failed;
// empty: it did not. Blocks; thread-safe.
std::vector<std::string> TryToReach(const hosts::v1::HostCommand::Reach& request);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HOSTS_REACH_PROBE_H_

#ifndef DDPRUN_RENDEZVOUS_WIRE_MUNGE_H_
#define DDPRUN_RENDEZVOUS_WIRE_MUNGE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun::rendezvous {

// MUNGE credentials (https://dun.github.io/munge), with which SLURM's own daemons authenticate each other: the munged
// of this host, which has the cluster's key, signs the user of this process, and the munged of another host verifies
// the signature. A credential is valid for one use within five minutes, and only for a process of the same user.
//
// libmunge.so.2 is loaded when it is first needed, so it need not be installed. Requests to munged run one after the
// other on their own thread, because an overloaded munged can take seconds. Thread-safe.
class Munge {
 public:
  // Called once for each request, on that thread or by Stop.
  //   FAILED_PRECONDITION  this host has no munge: there is no library, or no file at munged's socket.
  //   UNAVAILABLE          munged does not answer now.
  //   CANCELLED            Stop was called.
  using EncodeDone = std::function<void(absl::StatusOr<std::string>)>;
  // The errors of EncodeDone, and:
  //   RESOURCE_EXHAUSTED   too many requests are queued.
  //   UNAUTHENTICATED      the credential is invalid.
  //   PERMISSION_DENIED    the credential is another user's.
  using VerifyDone = std::function<void(absl::Status)>;

  // `socket`: path of munged's socket; empty: libmunge's default.
  explicit Munge(const std::string& socket);
  ~Munge();
  Munge(const Munge&) = delete;
  Munge& operator=(const Munge&) = delete;

  // Requests a new credential of this process's user.
  void Encode(EncodeDone done);

  // Verifies that `credential` is from a process of the same user as this one.
  void Verify(const std::string& credential, VerifyDone done);

  // Cancels all requests, also later ones, without waiting for munged. No callback runs after it returns.
  void Stop();

 private:
  class Thread;
  const std::shared_ptr<Thread> thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_MUNGE_H_

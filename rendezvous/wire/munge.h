#ifndef DDPRUN_RENDEZVOUS_WIRE_MUNGE_H_
#define DDPRUN_RENDEZVOUS_WIRE_MUNGE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun::rendezvous {

// MUNGE credentials (https://dun.github.io/munge), with which SLURM's own daemons authenticate each other: the munged
// of this host, which has the cluster's key, signs who this process's user is, and the munged of another host checks
// it. A credential is good for one use within five minutes, and only for a process of the same user.
//
// libmunge.so.2 is loaded when it is first needed, so it doesn't have to be installed. munged is asked on a thread of
// its own, one request after the other, because an overloaded munged can take seconds. Thread-safe.
class Munge {
 public:
  // Called once for each request, on that thread or by Stop. FAILED_PRECONDITION: munge is not on this host, and never
  // was: no library, or no file at munged's socket. UNAVAILABLE: it does not answer now. CANCELLED: Stop was called.
  using EncodeDone = std::function<void(absl::StatusOr<std::string>)>;
  // And RESOURCE_EXHAUSTED: too many requests wait. UNAUTHENTICATED: not a valid credential. PERMISSION_DENIED: another
  // user's.
  using VerifyDone = std::function<void(absl::Status)>;

  // `socket`: munged's; empty for the one that libmunge was built for.
  explicit Munge(const std::string& socket);
  ~Munge();
  Munge(const Munge&) = delete;
  Munge& operator=(const Munge&) = delete;

  // A new credential of this process's user.
  void Encode(EncodeDone done);

  // Whether `credential` is from a process of the same user as this one.
  void Verify(const std::string& credential, VerifyDone done);

  // Ends all requests, also later ones. No callback runs when it returns. Does not wait for munged.
  void Stop();

 private:
  class Thread;
  const std::shared_ptr<Thread> thread_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_MUNGE_H_

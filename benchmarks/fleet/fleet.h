#ifndef DDPRUN_BENCHMARKS_FLEET_FLEET_H_
#define DDPRUN_BENCHMARKS_FLEET_FLEET_H_

#include <grpcpp/completion_queue.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "base/endpoint.h"
#include "base/mutex.h"
#include "base/steady_time.h"
#include "rendezvous/client/client_stream.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/wire/channel_security.h"

namespace ddprun::benchmarks {

// Thousands of launchers in one process, each with a connection and a Session stream of its own. They have no workers
// and no stores: a launcher joins, beats as often as the server asks for, takes what it is assigned, answers StopRound
// with Ready at once, and closes its stream after Finish. A stream that ends otherwise counts as lost and is not opened
// again. One thread runs them all. Thread-safe.
class Fleet {
 public:
  // What has happened to all launchers together, and when the newest event of a kind came.
  struct Tally {
    struct Kind {
      int64_t count = 0;
      SteadyTime last = SteadyTime::InfinitePast();
    };
    Kind joined;    // the Join was sent
    Kind welcomed;  // and accepted
    Kind assigned;
    Kind told;      // StopRound
    Kind finished;  // and the stream has ended
    Kind lost;
    int64_t beats = 0;
    std::string trouble;  // of the first one lost
  };

  explicit Fleet(const Endpoint& server);
  // Cuts the streams that are left.
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Begins to connect a launcher and returns its number. The settings and names are those of `join`; node id and
  // incarnation are chosen here.
  int64_t Start(rendezvous::Join join);

  // A worker of this launcher, or of all of a job, fails or ends well. No effect on one without an assignment.
  void Fail(int64_t launcher);
  void Succeed(const std::string& job_id);

  Tally tally() const;
  // Waits until so many of a kind were counted; false if they are not at `deadline`.
  bool Await(Tally::Kind Tally::*kind, int64_t count, SteadyTime deadline);

 private:
  struct Launcher {
    std::shared_ptr<rendezvous::ClientStream> stream;
    rendezvous::Join join;
    uint64_t round = 0;  // 0: none yet
    absl::Duration interval = absl::InfiniteDuration();
    bool finished = false;
  };
  using Launchers = std::map<int64_t, Launcher>;

  void Run();
  void Post(std::function<void()> call);
  // All further ones on the queue's thread.
  void Connect(int64_t number, rendezvous::Join join);
  void OnMessage(int64_t number, const rendezvous::ServerMessage& message);
  void OnOver(int64_t number, const absl::Status& status);
  void Beat(SteadyTime now);
  void Note(Tally::Kind Tally::*kind);

  const std::string target_;
  const std::string host_;
  rendezvous::ClientSecurity security_;
  grpc::CompletionQueue queue_;
  Launchers launchers_;
  std::multimap<SteadyTime, int64_t> beats_;
  bool ending_ = false;

  mutable Mutex mutex_;
  CondVar changed_;
  int64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  Tally tally_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace ddprun::benchmarks

#endif  // DDPRUN_BENCHMARKS_FLEET_FLEET_H_

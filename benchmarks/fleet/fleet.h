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

// Simulates thousands of launchers in one process, each with its own connection and Session stream. They have no
// workers and no stores: a launcher joins, sends heartbeats at the interval the server requests, accepts assignments,
// answers StopRound with Ready at once, and closes its stream after Finish. A stream that ends otherwise counts as lost
// and is not reopened. One thread runs all launchers. Thread-safe.
class Fleet {
 public:
  // Event counts of all launchers together, with the time of the newest event of each kind.
  struct Tally {
    struct Kind {
      int64_t count = 0;
      SteadyTime last = SteadyTime::InfinitePast();
    };
    Kind joined;    // the Join was sent
    Kind welcomed;  // the Join was accepted
    Kind assigned;
    Kind told;      // StopRound was received
    Kind finished;  // the stream has ended after a Finish
    Kind lost;
    int64_t beats = 0;
    std::string trouble;  // the error of the first launcher lost
  };

  explicit Fleet(const Endpoint& server);
  // Cancels the remaining streams.
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Starts connecting a launcher and returns its number. Settings and names come from `join`; node id and incarnation
  // are chosen here.
  int64_t Start(rendezvous::Join join);

  // Simulates that a worker of this launcher fails, or that all workers of a job succeed. Ignored without an
  // assignment.
  void Fail(int64_t launcher);
  void Succeed(const std::string& job_id);

  Tally tally() const;
  // Waits until `count` events of a kind were counted; returns false at `deadline`.
  bool Await(Tally::Kind Tally::*kind, int64_t count, SteadyTime deadline);

 private:
  struct Launcher {
    std::shared_ptr<rendezvous::ClientStream> stream;
    rendezvous::Join join = rendezvous::NewJoin();
    uint64_t round = 0;  // 0: none yet
    absl::Duration interval = absl::InfiniteDuration();
    bool finished = false;
  };
  using Launchers = std::map<int64_t, Launcher>;

  void Run();
  void Post(std::function<void()> call);
  // All methods below run on the queue's thread.
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

  std::thread thread_;  // last: it uses all other members
};

}  // namespace ddprun::benchmarks

#endif  // DDPRUN_BENCHMARKS_FLEET_FLEET_H_

#ifndef DDPRUN_LAUNCHER_HANG_HANG_MONITOR_H_
#define DDPRUN_LAUNCHER_HANG_HANG_MONITOR_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/steady_time.h"
#include "launcher/config/flag_value.h"
#include "launcher/hang/hang_watch.h"
#include "launcher/hang/process_evidence.h"
#include "launcher/hang/worker_probe.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "proto/hang.pb.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Finds hangs of workers that report nothing: the shell of HangWatch. It asks the library in this node's Python workers
// for their collectives, collects evidence when the watch wants it, and passes on what the watch says. Belongs to the
// loop's thread, and must be destroyed before the loop. It also collects stacks that an operator asks for, since it has
// the connections to the workers.
class HangMonitor {
 public:
  struct Events {
    // True until the round ends: no worker has failed, and they are not being stopped. All may have succeeded.
    std::function<bool()> round_lasts;
    // The process of this worker; 0: it has ended.
    std::function<pid_t(int32_t local_rank)> process_of;
    // Sends evidence to the launcher of group rank 0.
    std::function<void(const std::string& payload)> send_evidence;
    // Shows a hang, replaces ranks, or shows that the hang is over, here and on the other nodes (rendezvous.proto).
    std::function<void(const rendezvous::Hang& hang)> report;
    // Sends stacks to the server.
    std::function<void(const rendezvous::Inspection& inspection)> send_stacks;
  };
  HangMonitor(const HangPolicy& policy, std::string host, int32_t slots, EventLoop* loop, Events events);
  ~HangMonitor();

  // Called when the workers begin the round; may be called again for the same round.
  void BeginRound(const rendezvous::Assignment& assignment);
  // A process of this worker has a process group, and answers on this socket.
  void OnProbe(int32_t local_rank, pid_t process, UniqueFd socket);
  // `text` is one phrase: "exited with code 0".
  void OnEnded(int32_t local_rank, const std::string& text);
  // Collects the stacks of these workers, whatever the policy is, and sends them within RankEvidence::kPatience.
  // REQUIRES: ranks[i] of `inspect` has local rank local_ranks[i].
  void Inspect(const rendezvous::Inspect& inspect, const std::vector<int32_t>& local_ranks);
  // Asks the processes of this worker how many collectives they have entered; returns how many are asked. `on_count` is
  // called once for each, from the loop, unless it ends before.
  size_t CountCollectives(int32_t local_rank, const std::function<void(std::optional<int64_t>)>& on_count);
  // Evidence of another node (proto/hang.proto).
  void OnNodeEvidence(const std::string& payload);

  // Evidence about this node's ranks that was collected last in the round; may be empty, or still incomplete.
  const hang::v1::NodeEvidence& collected() const { return all_.found; }

  SteadyTime NextDeadline() const { return watches_ ? watch_.NextDeadline() : SteadyTime::InfiniteFuture(); }
  void OnDeadline(SteadyTime now);

 private:
  struct Probe {
    std::unique_ptr<WorkerProbe> probe;
    SteadyTime since;
  };
  struct Worker {
    std::map<pid_t, Probe> probes;       // key: process
    std::map<pid_t, Counters> counters;  // last answers; key: process
    bool moved = false;                  // its counters have changed since the last sample was due
    std::deque<ActivitySample> samples;  // the last few while it stands, oldest first
  };
  // Evidence that is being collected.
  struct Collection {
    std::map<int32_t, std::unique_ptr<RankEvidence>> missing;  // collectors by local rank
    hang::v1::NodeEvidence found;
  };
  // Stacks that the server has asked for.
  struct Inspecting {
    rendezvous::Inspect asked;
    std::vector<rendezvous::RankStacks> found;
    std::map<int32_t, std::unique_ptr<RankEvidence>> missing;  // collectors by rank
  };
  void Handle(const HangEffects& effects);
  void AskCounters();
  void Sample();
  void OnCounters(int32_t local_rank, pid_t process, const std::string& answer);
  void Collect(Collection* collection, RankEvidence::Parts parts);
  void OnCollected(Collection* collection, int32_t local_rank, hang::v1::Rank rank);
  void PassEvidence(Collection* collection);
  std::unique_ptr<RankEvidence> CollectRank(int32_t local_rank, int32_t rank, pid_t pid, RankEvidence::Parts parts,
                                            std::function<void(hang::v1::Rank)> on_done);
  void OnInspected(std::list<Inspecting>::iterator inspecting, pid_t worker, const hang::v1::Rank& rank);
  void SendStacks(std::list<Inspecting>::iterator inspecting);

  const HangPolicy policy_;
  const std::string host_;
  EventLoop* const loop_;
  const Events events_;
  bool watches_ = false;  // a round has begun, and hangs are watched for
  uint64_t round_ = 0;
  int32_t base_rank_ = 0;
  int32_t store_port_ = 0;
  HangWatch watch_;
  std::vector<Worker> workers_;                                                  // index: local rank
  std::unique_ptr<BackgroundCall<std::map<int32_t, ActivitySample>>> sampling_;  // set while activity is sampled
  Collection all_;
  Collection collectives_;
  std::list<Inspecting> inspecting_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HANG_HANG_MONITOR_H_

#ifndef DDPRUN_LAUNCHER_HANG_PROCESS_EVIDENCE_H_
#define DDPRUN_LAUNCHER_HANG_PROCESS_EVIDENCE_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "launcher/hang/worker_probe.h"
#include "launcher/io/event_loop.h"
#include "launcher/process/stack_probe.h"
#include "proto/hang.pb.h"

// Evidence about the processes of a worker, read from outside: /proc and the kernel's table of TCP connections; and the
// collection of all evidence about a rank, which adds what the processes answer. What can't be read (a container
// without rights, another user's process, one that has ended) stays unset. Only reads: no process is stopped, traced or
// changed.
namespace ddprun::launcher {

// A TCP connection of this network namespace.
struct TcpConnection {
  uint64_t inode = 0;  // number of the socket, as in /proc/PID/fd
  uint64_t bytes = 0;  // sent and acknowledged, or received
  hang::v1::Connection evidence;
};

// All TCP connections that are neither listening nor closed, by sock_diag. Takes longer the more there are.
// Thread-safe.
std::vector<TcpConnection> ReadTcpConnections();

// Returns the connections whose sockets one of the processes has open.
std::vector<TcpConnection> ConnectionsOf(const std::vector<pid_t>& processes,
                                         const std::vector<TcpConnection>& connections);

// State of a process and the system call in which its main thread waits, with what it waits for. May block for as long
// as the process's memory is locked: not for the loop's thread. Unset: no such process. Thread-safe.
std::optional<hang::v1::Process> ReadProcess(pid_t pid, const std::vector<TcpConnection>& connections);

// Work that a worker and its descendants have done since they started. Value type.
struct ActivitySample {
  struct Process {
    absl::Duration cpu;     // also that of children which have ended
    absl::Duration waited;  // the main thread was ready to run and waited for a processor
    uint64_t io = 0;        // bytes read and written
  };
  SteadyTime at;
  std::map<pid_t, Process> processes;
  std::map<uint64_t, uint64_t> sockets;  // inode: bytes
};

// Cheap enough for the loop's thread. Thread-safe.
ActivitySample SampleActivity(pid_t worker, const std::vector<TcpConnection>& connections);

// PURE: sets cpu, waited, io and net of `rank` to what was done between two samples, per second.
void SetActivity(const ActivitySample& before, const ActivitySample& after, hang::v1::Rank* rank);

// Collects the evidence about a rank, once: what /proc and the kernel know about its processes, the stacks of the main
// threads, and the answers of its probes. Never blocks; finishes within kPatience whatever the processes do. Belongs to
// the loop's thread, which must be the main thread (StackProbe), and must be destroyed before the loop.
//
// If a child of the worker is the one with a process group, and the worker itself has none, that child is the rank's
// process and the worker is listed with the children.
class RankEvidence {
 public:
  // `probes`: those of the worker and its descendants, which may be destroyed at any time. `before`: an earlier sample,
  // from which activity is measured. `on_done` is called once, from the loop; it may destroy this object.
  //
  // kStacks: the processes are not asked for their collectives, which PyTorch reads without the lock under which a
  // group's first collective adds its counters. kCollectives: they are asked for nothing else, and not looked at.
  enum class Parts { kAll, kStacks, kCollectives };
  RankEvidence(EventLoop* loop, int32_t rank, pid_t worker, const std::vector<WorkerProbe*>& probes,
               std::optional<ActivitySample> before, std::function<void(hang::v1::Rank)> on_done,
               Parts parts = Parts::kAll);
  ~RankEvidence();
  RankEvidence(const RankEvidence&) = delete;
  RankEvidence& operator=(const RankEvidence&) = delete;

  static constexpr absl::Duration kPatience = absl::Seconds(3);

 private:
  struct FromOutside {
    std::vector<hang::v1::Process> processes;
    std::vector<TcpConnection> connections;
    ActivitySample activity;
  };

  void ReadFromOutside();
  void OnRead(FromOutside found);
  void AskForCollectives(WorkerProbe* probe);
  void AskForStacks(WorkerProbe* probe);
  void AskForMainStacks();
  void OnPartDone();
  void Finish();

  EventLoop* const loop_;
  const int32_t rank_;
  const pid_t worker_;
  const Parts parts_;
  const std::vector<pid_t> descendants_;
  const std::optional<ActivitySample> before_;
  const std::function<void(hang::v1::Rank)> on_done_;
  pid_t main_ = 0;  // the rank's process
  std::optional<FromOutside> from_outside_;
  std::map<pid_t, hang::v1::Process> stacks_;                  // answers of the processes
  std::map<pid_t, std::vector<hang::v1::Group>> groups_;       // likewise
  std::map<pid_t, std::unique_ptr<StackProbe>> stack_probes_;  // empty: the main threads were not asked yet
  std::map<pid_t, std::string> main_stacks_;
  std::unique_ptr<BackgroundCall<FromOutside>> reading_;
  std::vector<std::unique_ptr<BackgroundCall<std::vector<hang::v1::Group>>>> parsing_;
  int missing_ = 0;  // parts that are not done yet
  bool done_ = false;
  const SteadyTime deadline_;
  const SteadyTime read_deadline_;
  std::shared_ptr<const EventLoop::Timer> timer_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false once this object is gone
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_HANG_PROCESS_EVIDENCE_H_

#ifndef DDPRUN_LAUNCHER_INSPECT_INSPECTOR_H_
#define DDPRUN_LAUNCHER_INSPECT_INSPECTOR_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/steady_time.h"
#include "launcher/hang/process_evidence.h"
#include "launcher/inspect/gpu_usage.h"
#include "launcher/inspect/output_answer.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/output_source.h"
#include "rendezvous/core/inspection.h"
#include "rendezvous/core/messages.h"

namespace ddprun::launcher {

// Resources that a worker and its descendants have used until a moment.
struct UsageSample {
  pid_t worker = 0;
  ActivitySample activity;
  int64_t memory_bytes = 0;
  std::optional<GpuUse> gpu;
  std::optional<int64_t> collectives;  // entered so far
};

// PURE: what was used between two samples of one worker.
rendezvous::RankUsage UsageBetween(int32_t rank, const UsageSample& before, const UsageSample& after);

// Answers operators' questions about the output and the usage of this node's workers (protocol 6.3); HangMonitor
// answers those about stacks. Files, /proc and GPUs are read by threads of their own.
//
// A question with positions comes from an operator who follows the output. It is answered a second later, or when the
// launcher exits: so the operator always has a question here, and receives what the workers print last.
//
// Usage is measured between two samples. The first one is that of an earlier question, or is taken now.
//
// Belongs to the loop's thread, and must be destroyed before the loop.
class Inspector {
 public:
  struct Events {
    // The process of this worker; 0: it has ended.
    std::function<pid_t(int32_t local_rank)> process_of;
    // Asks the processes of this worker how many collectives they have entered; returns how many are asked. `on_count`
    // is called once for each, from the loop; never for those that end before.
    std::function<size_t(int32_t local_rank, std::function<void(std::optional<int64_t>)> on_count)> count_collectives;
    // Sends a part of an answer to the server.
    std::function<void(const rendezvous::Inspection& inspection)> send;
  };
  Inspector(EventLoop* loop, int32_t slots, Events events);
  ~Inspector();

  // A new process of this worker writes its output here.
  void OnOutput(int32_t local_rank, const OutputSource& out, const OutputSource& err);
  // Answers a question about output or usage within a few seconds. A question of an unknown kind gets an empty answer.
  // REQUIRES: ranks[i] of `inspect` has local rank local_ranks[i].
  void Inspect(const rendezvous::Inspect& inspect, const std::vector<int32_t>& local_ranks);
  // Answers the questions about output that are waiting, before the launcher exits. Blocks, for half a second at most.
  void AnswerNow();

 private:
  struct Streams {
    OutputOfProcess current, previous;
  };
  struct Worker {
    Streams out, err;
    std::optional<UsageSample> sample;  // the last one
  };
  struct OutputQuestion {
    rendezvous::Inspect asked;
    std::vector<int32_t> local_ranks;
    SteadyTime due;
    std::unique_ptr<BackgroundCall<std::vector<rendezvous::RankOutput>>> reading;
  };
  struct UsageQuestion {
    rendezvous::Inspect asked;
    std::vector<int32_t> local_ranks;
    SteadyTime due = SteadyTime::InfiniteFuture();  // time of the next step
    bool again = false;                             // this is its second sample
    std::unique_ptr<BackgroundCall<std::map<int32_t, UsageSample>>> sampling;
    std::map<int32_t, UsageSample> samples;  // keys are local ranks
    std::map<int32_t, int64_t> counts;       // collectives; keys are local ranks
    size_t missing = 0;                      // parts of the sample
  };
  using OutputQuestions = std::list<OutputQuestion>;
  using Usage = std::shared_ptr<UsageQuestion>;

  SteadyTime NextDeadline() const;
  void OnDeadline(SteadyTime now);
  std::function<std::vector<rendezvous::RankOutput>()> Reading(const OutputQuestion& question) const;
  void SendOutput(const rendezvous::Inspect& asked, std::vector<rendezvous::RankOutput> outputs);
  void Sample(const Usage& question);
  void OnPartDone(const Usage& question);
  void OnSampled(const Usage& question);

  EventLoop* const loop_;
  const Events events_;
  std::vector<Worker> workers_;  // index: local rank
  OutputQuestions outputs_;
  std::list<Usage> usages_;
  std::shared_ptr<const EventLoop::Timer> timer_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_INSPECT_INSPECTOR_H_

#ifndef DDPRUN_RENDEZVOUS_SERVER_INSPECTIONS_H_
#define DDPRUN_RENDEZVOUS_SERVER_INSPECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "proto/control.pb.h"
#include "rendezvous/core/command.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {

using NodeKey = std::tuple<std::string, std::string, uint64_t>;  // job, node, incarnation

// Inspect calls that wait for the answers of launchers (protocol 6.3): part of the Driver, which calls it under its
// lock, and calls the returned answers without it. A call ends when all asked nodes have answered or are gone, or at
// its deadline; nodes without a complete answer are listed in the response. Answers count only from a node, incarnation
// and round that was asked, about the ranks and of the kind that were asked for. Output is passed on as bytes.
class Inspections {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(5);
  // A client that follows the output of a job nearly always has a call here.
  static constexpr size_t kMaxCalls = 64;
  static constexpr size_t kMaxCallsPerJob = 16;
  static constexpr size_t kMaxBytes = 32 << 20;        // size of a response; further nodes are listed as silent
  static constexpr size_t kMaxBytesOfAll = 128 << 20;  // likewise, of all responses together

  using Answer = std::function<void(absl::Status)>;
  using Answers = std::vector<Answer>;  // answers to calls that have ended

  // Returns the id for a new call of this job.
  //   RESOURCE_EXHAUSTED  there are too many calls.
  absl::StatusOr<uint64_t> NewId(const std::string& job_id);

  // Begins a call. `response` must exist until `answer` is called.
  Answers Begin(const v1::Inspect& question, const std::string& job_id, const InspectedNodes& nodes, SteadyTime now,
                v1::InspectResponse* response, Answer answer);
  Answers OnInspection(const NodeKey& from, Inspection inspection);
  // The node's stream of this incarnation has ended.
  Answers OnGone(const NodeKey& node);
  Answers OnDeadline(SteadyTime now);
  // Ends all calls.
  Answers TakeAll();

  SteadyTime NextDeadline() const;

 private:
  struct Call {
    std::string job_id;
    v1::Inspect::What what;
    uint64_t round = 0;
    SteadyTime deadline;
    std::map<NodeKey, InspectedNodes::Node> missing;  // nodes and ranks that have not answered
    size_t bytes = 0;
    v1::InspectResponse* response = nullptr;
    Answer answer;
  };
  using Calls = std::map<uint64_t, Call>;  // keys are ids

  // Moves answers about the asked ranks of `node` to the response. False: not all fit.
  template <typename List>
  bool Take(List* answers, bool once, InspectedNodes::Node* node, Call* call, List* response);
  static void AddSilent(const std::string& host, const char* reason, v1::InspectResponse* response);
  // Ends the call if no node is missing.
  void EndIfComplete(Calls::iterator call, Answers* ended);

  Calls calls_;
  size_t bytes_ = 0;  // sum over all calls
  uint64_t last_id_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_INSPECTIONS_H_

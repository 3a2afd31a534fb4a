#ifndef DDPRUN_RENDEZVOUS_CORE_DEPARTED_NODES_H_
#define DDPRUN_RENDEZVOUS_CORE_DEPARTED_NODES_H_

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/beat_plan.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/membership.h"

namespace ddprun::rendezvous {

// PURE: the nodes that a job has lost or kicked. If their launchers join again, even after a restart of the server or
// after the end of the job, they receive the verdict. Thread-compatible.
class DepartedNodes {
 public:
  // Maximum numbers of nodes; the oldest are forgotten. A record can hold kMaxLost spares in addition.
  static constexpr int kMaxKicked = 1000;
  static constexpr int kMaxLost = 256;

  // Restores what Record wrote. `unreported`: see EndedJob::unreported, for the previous job of this id.
  DepartedNodes(const JobRecord& record, bool unreported)
      : kicked_(record.kicked()), lost_(record.others()), unreported_(unreported) {}

  void AddLost(const std::string& node_id) {
    if (lost_.size() >= kMaxLost) lost_.erase(lost_.begin());
    *lost_.Add() = node_id;
  }
  void AddKicked(const std::string& node_id, const std::string& actor) {
    if (kicked_.size() == kMaxKicked) kicked_.erase(kicked_.begin());
    KickedNodeRecord* const node = kicked_.Add();
    node->set_node_id(node_id);
    node->set_actor(actor);
  }
  // Reports that a node joined. Returns true if it was lost before, or was a spare in the record.
  bool OnJoin(const std::string& node_id) {
    unheard_.erase(node_id);
    const auto it = std::find(lost_.begin(), lost_.end(), node_id);
    if (it == lost_.end()) return false;
    lost_.erase(it);
    return true;
  }
  // Returns the user who kicked the node; nullptr if it was not kicked.
  const std::string* KickedBy(absl::string_view node_id) const {
    const auto it = std::find_if(kicked_.begin(), kicked_.end(), [&](const auto& k) { return k.node_id() == node_id; });
    return it == kicked_.end() ? nullptr : &it->actor();
  }

  // Expects a disconnected or lost node to rejoin for the verdict, because its workers have succeeded or the job ends.
  // It may do so until 7/6 of the job's longest heartbeat timeout after its last message (protocol 5).
  void ExpectForVerdict(const Node& node, const JobSettings& settings) {
    unheard_[node.join.node_id()] = node.last_heard + FenceTime(LongestTimeout(settings));
  }
  // Stops expecting these nodes, because a new round begins without them.
  void OnAssign() { unheard_.clear(); }
  // Marks the job as ended before all nodes of its round have reported.
  void SetUnreported() { unreported_ = true; }

  // Fill in the fields of the record, or of the ended job, that name absent nodes.
  void Record(JobRecord* record) const {
    *record->mutable_kicked() = kicked_;
    *record->mutable_others() = lost_;
  }
  void FillIn(EndedJob* ended) const {
    ended->unreported = unreported_;
    ended->unheard = unheard_;
    ended->AddAbsent(kicked_, lost_);
  }

 private:
  google::protobuf::RepeatedPtrField<KickedNodeRecord> kicked_;  // oldest first
  google::protobuf::RepeatedPtrField<std::string> lost_;  // node ids, oldest first; restored ids may be those of spares
  std::map<std::string, SteadyTime> unheard_;             // see EndedJob::unheard
  bool unreported_ = false;                               // see EndedJob::unreported
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_DEPARTED_NODES_H_

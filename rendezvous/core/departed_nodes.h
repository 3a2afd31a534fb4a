#ifndef DDPRUN_RENDEZVOUS_CORE_DEPARTED_NODES_H_
#define DDPRUN_RENDEZVOUS_CORE_DEPARTED_NODES_H_

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/steady_time.h"
#include "rendezvous/core/beat_plan.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/membership.h"

namespace ddprun::rendezvous {

// PURE: the nodes that a job has lost or kicked. Their launchers receive the outcome if they rejoin, also from the next
// server and after the end of the job. Thread-compatible.
class DepartedNodes {
 public:
  // With more nodes the oldest are forgotten. A record has room for kMaxLost spares, too.
  static constexpr size_t kMaxKicked = 1000;
  static constexpr size_t kMaxLost = 256;

  // Restores what Record wrote. `unreported`: nodes of the previous job's last round have not come to this server.
  DepartedNodes(const JobRecord& record, bool unreported)
      : kicked_(record.kicked), lost_(record.others), unreported_(unreported) {}

  void AddLost(const std::string& node_id) {
    if (lost_.size() >= kMaxLost) lost_.erase(lost_.begin());
    lost_.push_back(node_id);
  }
  void AddKicked(const std::string& node_id, const std::string& actor) {
    if (kicked_.size() == kMaxKicked) kicked_.erase(kicked_.begin());
    kicked_.push_back(KickedNodeRecord{node_id, actor});
  }
  // The node has joined. Returns true if it was lost, or was a spare when the record was made.
  bool OnJoin(const std::string& node_id) {
    unheard_.erase(node_id);
    return std::erase(lost_, node_id) > 0;
  }
  // The actor of the command that kicked the node; nullptr if the node was not kicked.
  const std::string* KickedBy(absl::string_view node_id) const {
    const auto it = std::find_if(kicked_.begin(), kicked_.end(), [&](const auto& k) { return k.node_id == node_id; });
    return it == kicked_.end() ? nullptr : &it->actor;
  }

  // The workers of this disconnected or lost node have succeeded, or the job ends: its launcher may still come for the
  // verdict, within the fence time of the job's longest heartbeat timeout.
  void ExpectForVerdict(const Node& node, const JobSettings& settings) {
    unheard_[node.join.node_id()] = node.last_heard + FenceTime(LongestTimeout(settings));
  }
  // A new round begins without the nodes that were expected.
  void OnAssign() { unheard_.clear(); }
  // The job ends before all nodes of its round have reported.
  void SetUnreported() { unreported_ = true; }

  // Fills in the parts of the record, and of the ended job, that name absent nodes.
  void Record(JobRecord* record) const {
    record->kicked = kicked_;
    record->others = lost_;
  }
  void FillIn(EndedJob* ended) const {
    ended->unreported = unreported_;
    ended->unheard = unheard_;
    ended->AddAbsent(kicked_, lost_);
  }

 private:
  std::vector<KickedNodeRecord> kicked_;       // oldest first
  std::vector<std::string> lost_;              // node ids, oldest first; those restored may be of spares
  std::map<std::string, SteadyTime> unheard_;  // see EndedJob
  bool unreported_ = false;                    // see EndedJob
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_DEPARTED_NODES_H_

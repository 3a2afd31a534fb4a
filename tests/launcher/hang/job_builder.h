#ifndef DDPRUN_TESTS_LAUNCHER_HANG_JOB_BUILDER_H_
#define DDPRUN_TESTS_LAUNCHER_HANG_JOB_BUILDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/hang/judge.h"
#include "proto/hang.pb.h"

// Ranks made up for tests: what a launcher would know about them.
namespace ddprun::launcher {

// Evidence about one rank. Its main thread waits in a collective if its last one is pending, else it sleeps at
// train.py:31 in load.
class RankBuilder {
 public:
  explicit RankBuilder(int32_t rank);

  // Enters a collective of 40 s ago. Sizes and types: "Float[10]"; empty: none.
  RankBuilder& Enter(const std::string& name, const std::string& tensor, bool pending,
                     const std::string& group = "default_pg");
  RankBuilder& Done() { return Enter("all_reduce", "Float[10]", false); }
  RankBuilder& Wait(const std::string& group = "default_pg") { return Enter("all_reduce", "Float[10]", true, group); }
  // Declares the group and its members.
  RankBuilder& Join(const std::string& group, const std::vector<int32_t>& members);
  // "send 0->1", "recv 1<-0", pending.
  RankBuilder& PointToPoint(const std::string& name, const std::string& group = "default_pg");
  // From here on, operations run on its device, one after the other.
  RankBuilder& OnDevice();
  // The main thread sleeps, whatever is pending.
  RankBuilder& Sleep();
  RankBuilder& Stop();
  RankBuilder& Cpu(double processors);

  hang::v1::Group& Group(const std::string& name);
  hang::v1::Rank* operator->() { return &rank_; }
  operator hang::v1::Rank() const { return rank_; }  // NOLINT: a test passes builders as ranks

 private:
  hang::v1::Rank rank_;
  int64_t order_ = 0;  // order of the last operation; 0: not on a device
};

// A job on one node.
JobEvidence JobOf(const std::vector<hang::v1::Rank>& ranks);
// A job of several nodes with these ranks: node-a, node-b, ... All ranks of an empty node are unknown.
JobEvidence JobOf(const std::vector<std::vector<hang::v1::Rank>>& nodes, int32_t world_size);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_LAUNCHER_HANG_JOB_BUILDER_H_

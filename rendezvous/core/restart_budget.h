#ifndef DDPRUN_RENDEZVOUS_CORE_RESTART_BUDGET_H_
#define DDPRUN_RENDEZVOUS_CORE_RESTART_BUDGET_H_

#include <algorithm>
#include <cstdint>

namespace ddprun::rendezvous {

// How often the workers of one job may be started again because one failed: one number for the whole job, whichever
// node the failure was on. Value type.
class RestartBudget {
 public:
  explicit RestartBudget(int32_t max_restarts) : max_(max_restarts) {}

  // Takes one restart; false if none is left, and then nothing changes.
  bool Charge() {
    if (used_ >= max_) return false;
    ++used_;
    return true;
  }

  // A node, or a record, knows of this many: a server that was restarted learns it so. Whether that is news.
  bool LearnUsed(int32_t used) {
    const int32_t before = used_;
    used_ = std::max(used_, std::min(used, max_));
    return used_ > before;
  }

  int32_t used() const { return used_; }
  int32_t max() const { return max_; }

 private:
  int32_t max_;
  int32_t used_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RESTART_BUDGET_H_

#ifndef DDPRUN_LAUNCHER_CONFIG_ORIGINS_H_
#define DDPRUN_LAUNCHER_CONFIG_ORIGINS_H_

#include <map>
#include <string>
#include <utility>

namespace ddprun::launcher {

// Records, for display, where the value of each flag came from: "--nnodes=2", "PET_NNODES=2", "SLURM_STEP_NUM_NODES=2",
// "default". Flags are named as in the flag table ("nnodes"). Thread-compatible value type.
class Origins {
 public:
  // The value was given by the flag or its variable, and nothing else may change it.
  void Give(const std::string& flag, std::string text) { origins_[flag] = {std::move(text), true}; }
  // The value was taken from another source because the flag was not given.
  void Take(const std::string& flag, std::string text) { origins_[flag] = {std::move(text), false}; }

  bool IsGiven(const std::string& flag) const {
    const auto found = origins_.find(flag);
    return found != origins_.end() && found->second.given;
  }
  std::string Of(const std::string& flag) const {
    const auto found = origins_.find(flag);
    return found == origins_.end() ? "default" : found->second.text;
  }

 private:
  struct Origin {
    std::string text;
    bool given = false;
  };
  std::map<std::string, Origin> origins_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_ORIGINS_H_

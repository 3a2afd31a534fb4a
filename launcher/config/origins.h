#ifndef DDPRUN_LAUNCHER_CONFIG_ORIGINS_H_
#define DDPRUN_LAUNCHER_CONFIG_ORIGINS_H_

#include <map>
#include <string>
#include <utility>

namespace ddprun::launcher {

// Where the value of each flag came from, for people: "--nnodes=2", "PET_NNODES=2", "SLURM_STEP_NUM_NODES=2",
// "default". Flags are named as in the flag table ("nnodes"). Thread-compatible value type.
class Origins {
 public:
  // A flag or its variable said so: nothing else may change the value.
  void Give(const std::string& flag, std::string text) { origins_[flag] = {std::move(text), true}; }
  // It was taken from elsewhere because no flag spoke.
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

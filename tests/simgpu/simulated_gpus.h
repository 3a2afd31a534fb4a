#ifndef DDPRUN_TESTS_SIMGPU_SIMULATED_GPUS_H_
#define DDPRUN_TESTS_SIMGPU_SIMULATED_GPUS_H_

#include <filesystem>
#include <map>
#include <string>

namespace ddprun::testing {

// The environment of a program that is to see `count` simulated GPUs, for a Process. `more` has other variables, as
// README.md lists them.
inline std::map<std::string, std::string> SimulatedGpus(int count, std::map<std::string, std::string> more = {}) {
  const std::string folder = std::filesystem::absolute("tests/simgpu").string();
  more.insert({{"LD_PRELOAD",
                folder + "/cuda/libcudart.so.13:" + folder + "/cuda/libcuda.so.1:" + folder + "/nccl/libnccl.so.2"},
               {"SIMCUDA_OPS", folder + "/aten/libsimops.so"},
               {"SIMCUDA_DEVICES", std::to_string(count)},
               {"DDPRUN_NCCL_LIBRARY",
                std::filesystem::absolute("worker_runtime/process_group/nccl_plugin/libddprun_nccl.so").string()},
               {"OMP_NUM_THREADS", "1"}});
  return more;
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMGPU_SIMULATED_GPUS_H_

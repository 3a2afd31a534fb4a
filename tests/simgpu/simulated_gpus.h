#ifndef DDPRUN_TESTS_SIMGPU_SIMULATED_GPUS_H_
#define DDPRUN_TESTS_SIMGPU_SIMULATED_GPUS_H_

#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include "tests/testing/process.h"

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

// True if the LibTorch of this build has nccl2 (PyTorch 2.15).
inline bool HasNccl2() {
  std::error_code error;
  const auto venv = std::filesystem::path(VenvPython()).parent_path().parent_path();
  for (const auto& python : std::filesystem::directory_iterator(venv / "lib", error)) {
    for (const auto& package : std::filesystem::directory_iterator(python.path() / "site-packages", error)) {
      int minor = 0;
      if (sscanf(package.path().filename().c_str(), "torch-2.%d.", &minor) == 1) return minor >= 15;
    }
  }
  return false;
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SIMGPU_SIMULATED_GPUS_H_

// Fault points: places in a rank's work where SIMCUDA_DIE, SIMCUDA_FAULT or SIMNCCL_FAIL make it fail. A value is
// RANK:POINT:NUMBER, the NUMBER-th time that this rank passes the point. SIMCUDA_DIE_ONCE names a file that is created
// at that moment; if it exists, nothing fails, so that a worker that is started again lives on.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "tests/simgpu/cuda/machine.h"
#include "tests/simgpu/cuda/simcuda.h"
#include "tests/simgpu/settings.h"

namespace simgpu {
namespace {

class FaultPoint {
 public:
  explicit FaultPoint(const char* variable) : setting_(TextSetting(variable)) {}

  // True if the setting names this passage of `point`.
  bool IsNow(const char* point) {
    if (setting_ == nullptr) return false;
    const char* const rank = TextSetting("RANK");
    const std::string prefix = std::string(rank == nullptr ? "0" : rank) + ":" + point + ":";
    if (strncmp(setting_, prefix.c_str(), prefix.size()) != 0) return false;
    if (++passages_ != atol(setting_ + prefix.size())) return false;
    const char* const once = TextSetting("SIMCUDA_DIE_ONCE");
    if (once == nullptr) return true;
    const int file = open(once, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) return false;
    close(file);
    return true;
  }

 private:
  const char* const setting_;
  std::atomic<long> passages_{0};
};

}  // namespace
}  // namespace simgpu

extern "C" int simcuda_point(const char* point) {
  static simgpu::FaultPoint death("SIMCUDA_DIE"), fault("SIMCUDA_FAULT"), nccl_failure("SIMNCCL_FAIL");
  if (death.IsNow(point)) kill(getpid(), SIGKILL);
  if (fault.IsNow(point)) simcuda_set_sticky_error(simgpu::CurrentDevice(), cudaErrorIllegalAddress);
  return nccl_failure.IsNow(point) ? 1 : 0;
}

#include <ATen/Functions.h>
#include <dlfcn.h>
#include <torch/utils.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tests/simgpu/features/features.h"
#include "tests/simgpu/features/net.h"
#include "worker_runtime/ddp/distributed_data_parallel.h"

namespace ddprun::testing {
namespace {

// Groups after which numbers must not grow: LibTorch has used all of its pool of streams by then, and each stream of
// the simulated device has a thread.
constexpr int kWarmUp = 40;

// A function of the simulated runtime, with which this program is not linked.
long Simulated(const char* name) {
  const auto function = reinterpret_cast<long (*)()>(dlsym(RTLD_DEFAULT, name));
  return function == nullptr ? 0 : function();
}

long Entries(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return std::distance(begin(entries), end(entries));
}

struct Usage {
  long descriptors = Entries("/proc/self/fd");
  long threads = Entries("/proc/self/task");
  long device_bytes = Simulated("simcuda_used_bytes");
  long streams = Simulated("simcuda_stream_count");

  std::string ToString() const {
    return absl::StrFormat("%d descriptors, %d threads, %d bytes on the device, %d streams", descriptors, threads,
                           device_bytes, streams);
  }
};

absl::Status TrainInNewGroup(Worker& worker, Net& net, bool abort) {
  ProcessGroupOptions options;
  options.device = worker.device();
  options.backend = worker.group()->backend();
  options.timeout = worker.group()->timeout();
  DDPRUN_ASSIGN_OR_RETURN(auto group, ProcessGroup::Create(worker.env(), options));
  {
    DDPRUN_ASSIGN_OR_RETURN(auto ddp, MakeDistributedDataParallel(net, group));
    for (int step = 0; step < 2; ++step) {
      ddp->zero_grad();
      ddp->forward(Data(worker, step, 6, 8)).pow(2).mean().backward();
    }
    Sum(*net);  // waits for the device
  }
  DDPRUN_RETURN_IF_ERROR(worker.group()->Barrier());
  if (!abort) return group->Shutdown();
  group->Abort("the test re-forms");
  return absl::OkStatus();
}

}  // namespace

absl::Status ReForm(Worker& worker, int times) {
  torch::manual_seed(7);
  Net net;
  net->to(worker.device());
  for (int i = 0; i < kWarmUp; ++i) DDPRUN_RETURN_IF_ERROR(TrainInNewGroup(worker, net, i % 2 == 1));
  const Usage before;
  for (int i = 0; i < times; ++i) DDPRUN_RETURN_IF_ERROR(TrainInNewGroup(worker, net, i % 2 == 1));
  // Threads of the last group may take a moment to end.
  for (int i = 0; i < 1000; ++i) {
    const Usage now;
    if (now.descriptors <= before.descriptors && now.threads <= before.threads &&
        now.device_bytes <= before.device_bytes && now.streams <= before.streams) {
      printf("re-formed rank %d: %s\n", worker.env().rank, now.ToString().c_str());
      return absl::OkStatus();
    }
    DDPRUN_RETURN_IF_ERROR(worker.group()->Health());
    usleep(10000);
  }
  return absl::InternalError(absl::StrFormat("%s; before %d groups: %s", Usage().ToString(), times, before.ToString()));
}

}  // namespace ddprun::testing

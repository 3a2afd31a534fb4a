// A worker that uses features of the worker runtime:
//   features all DEVICE BACKEND FOLDER        prints numbers, which must be equal on each device
//   features re-form DEVICE BACKEND TIMES    trains in this many groups, one after the other
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/status_macros.h"
#include "tests/simgpu/features/features.h"
#include "worker_runtime/worker.h"

namespace ddprun::testing {
namespace {

absl::Status UseAll(Worker& worker, const std::string& folder) {
  DDPRUN_RETURN_IF_ERROR(TrainAllWays(worker));
  DDPRUN_RETURN_IF_ERROR(UseCollectives(worker));
  DDPRUN_RETURN_IF_ERROR(worker.group()->Try("metrics", [&] { return UseMetrics(worker); }));
  DDPRUN_RETURN_IF_ERROR(worker.group()->Try("state", [&] { return UseTrainingState(worker); }));
  return UseCheckpoints(worker, folder);
}

}  // namespace
}  // namespace ddprun::testing

int main(int, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);  // lines of several ranks do not mix
  const std::string mode = argv[1], argument = argv[4];
  ddprun::RunWorker({.device = argv[2], .seed = 1, .backend = argv[3], .timeout = absl::Seconds(40)},
                    [&](ddprun::Worker& worker) -> absl::Status {
                      DDPRUN_RETURN_IF_ERROR(worker.InitProcessGroup());
                      return mode == "all" ? ddprun::testing::UseAll(worker, argument)
                                           : ddprun::testing::ReForm(worker, atoi(argument.c_str()));
                    });
}

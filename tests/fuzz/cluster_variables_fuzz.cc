// Variables that SLURM, MPI, Kubernetes and other platforms set for a launcher, as NAME=value lines.
#include "launcher/cluster/detect.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun::launcher;  // NOLINT
  const auto found = DetectCluster(ddprun::fuzz::Variables(ddprun::fuzz::Bytes(data, size)), std::nullopt,
                                   "node1.cluster", [](const std::string& path) { return path + "\n" + path; });
  if (!found.ok()) FUZZ_CHECK(absl::IsInvalidArgument(found.status()));
  return 0;
}

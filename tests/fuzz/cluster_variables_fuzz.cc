// Variables that SLURM, MPI or Kubernetes set for a launcher, as NAME=value lines.
#include "launcher/cluster/detect.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun::launcher;  // NOLINT
  const auto found =
      DetectCluster(ddprun::fuzz::Variables(ddprun::fuzz::Bytes(data, size)), std::nullopt, "node1.cluster");
  if (!found.ok()) FUZZ_CHECK(absl::IsInvalidArgument(found.status()));
  return 0;
}

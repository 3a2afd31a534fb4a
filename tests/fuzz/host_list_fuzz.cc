// SLURM's compressed forms: a list of hosts, and a number per node.
#include "launcher/cluster/host_list.h"
#include "rendezvous/core/limits.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;  // NOLINT
  const absl::string_view text = fuzz::Bytes(data, size);
  if (const auto hosts = launcher::ExpandHostList(text); hosts.ok()) {
    FUZZ_CHECK(hosts->size() <= rendezvous::kMaxNodes);
    for (const std::string& host : *hosts) FUZZ_CHECK(!host.empty() && host.size() <= rendezvous::kMaxNameBytes);
  }
  if (const auto counts = launcher::ExpandTaskCounts(text); counts.ok()) {
    FUZZ_CHECK(counts->size() <= rendezvous::kMaxNodes);
    for (const int count : *counts) FUZZ_CHECK(count >= 1);
  }
  return 0;
}

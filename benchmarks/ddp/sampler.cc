// Counterpart of sampler.py: one epoch of one rank with ddprun's DistributedSampler. `sampler SAMPLES` prints one line
// of JSON.
#include <stdio.h>

#include <chrono>
#include <fstream>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker_runtime/data/distributed_sampler.h"

namespace {

constexpr int kWorld = 8;
constexpr int kRank = 3;
constexpr size_t kBatch = 1024;

double PeakMegabytes() {
  std::ifstream status("/proc/self/status");
  const std::string name = "VmHWM:";
  for (std::string line; std::getline(status, line);) {
    if (line.compare(0, name.size(), name) == 0) return std::stod(line.substr(name.size())) / 1024;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t samples = argc == 2 ? atoll(argv[1]) : 0;
  const double before = PeakMegabytes();
  absl::StatusOr<ddprun::DistributedSampler> sampler =
      ddprun::DistributedSampler::Create(samples, {.num_replicas = kWorld, .rank = kRank});
  if (!sampler.ok()) {
    fprintf(stderr, "%s\n", std::string(sampler.status().message()).c_str());
    return 2;
  }
  const auto began = std::chrono::steady_clock::now();
  sampler->set_epoch(1);
  size_t sum = 0;
  while (std::optional<std::vector<size_t>> indices = sampler->next(kBatch)) {
    sum = std::accumulate(indices->begin(), indices->end(), sum);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  printf("{\"seconds\": %.9f, \"megabytes\": %.3f, \"sum\": %zu}\n", seconds.count(), PeakMegabytes() - before, sum);
  return 0;
}

#ifndef DDPRUN_LAUNCHER_CONFIG_CPU_BINDING_H_
#define DDPRUN_LAUNCHER_CONFIG_CPU_BINDING_H_

#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// PURE. --numa-binding: the CPUs that each worker of a node may use.
namespace ddprun::launcher {

// torchrun's modes. A worker's GPU is the one with its local rank.
enum class CpuBinding {
  kNone,
  kNode,         // the CPUs of the NUMA node of the worker's GPU
  kSocket,       // the CPUs of all NUMA nodes of that socket
  kExclusive,    // an exclusive share of the NUMA node's cores
  kCoreComplex,  // CPUs that share a last-level cache; distinct per worker while there are enough
};

// Resources that this process may use.
struct CpuTopology {
  struct Cpu {
    int node = 0;    // NUMA node
    int socket = 0;  // physical package
    int core = 0;    // the lowest CPU of the same core
    int cache = 0;   // the lowest CPU that shares its last-level cache
  };
  std::map<int, Cpu> cpus;     // indexed by CPU number
  std::vector<int> gpu_nodes;  // NUMA node of each visible GPU, in order; empty: no GPUs
};

// "node", "socket", "exclusive", "core-complex".
absl::StatusOr<CpuBinding> ParseCpuBinding(absl::string_view text);

// Parses a CPU list in the kernel's format: "0-2,4". nullopt: malformed.
std::optional<std::vector<int>> ParseCpuList(absl::string_view text);

// Returns the CPUs of each worker, by local rank, in ascending order. If there are more workers than GPUs, the surplus
// starts over with the first GPU; without GPUs, neighbouring ranks share a NUMA node and workers are spread evenly over
// the nodes. REQUIRES: not kNone. FailedPrecondition, in one line: a node has no usable CPU, or too few cores for
// exclusive shares.
absl::StatusOr<std::vector<std::vector<int>>> BindWorkers(CpuBinding binding, const CpuTopology& topology, int workers);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_CPU_BINDING_H_

#ifndef DDPRUN_LAUNCHER_CONFIG_CPU_BINDING_H_
#define DDPRUN_LAUNCHER_CONFIG_CPU_BINDING_H_

#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// --numa-binding: which CPUs each worker of a node may use. Pure functions.
namespace ddprun::launcher {

// torchrun's modes. A worker's GPU is that of its local rank.
enum class CpuBinding {
  kNone,
  kNode,         // the CPUs of the NUMA node of the worker's GPU
  kSocket,       // those of all NUMA nodes of that socket
  kExclusive,    // a share of the NUMA node's cores that no other worker has
  kCoreComplex,  // those that share one last-level cache there; another one for each worker, as far as they go round
};

// What this process may use.
struct CpuTopology {
  struct Cpu {
    int node = 0;    // NUMA node
    int socket = 0;  // physical package
    int core = 0;    // the lowest CPU of the same core
    int cache = 0;   // the lowest CPU that shares its last-level cache
  };
  std::map<int, Cpu> cpus;     // by number
  std::vector<int> gpu_nodes;  // the NUMA node of each GPU that workers see, in their order; empty: there are none
};

// "node", "socket", "exclusive", "core-complex".
absl::StatusOr<CpuBinding> ParseCpuBinding(absl::string_view text);

// A list of the kernel's: "0-2,4". nullopt: it is none.
std::optional<std::vector<int>> ParseCpuList(absl::string_view text);

// The CPUs of each worker, by local rank, in ascending order. Workers beyond the GPUs begin with the first GPU again;
// without GPUs neighbouring ranks share a NUMA node, and each node has about as many. REQUIRES: not kNone.
// FailedPrecondition, in one line: a node has no CPU that may be used, or fewer cores than workers that want their own.
absl::StatusOr<std::vector<std::vector<int>>> BindWorkers(CpuBinding binding, const CpuTopology& topology, int workers);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_CPU_BINDING_H_

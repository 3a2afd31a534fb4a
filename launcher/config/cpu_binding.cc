#include "launcher/config/cpu_binding.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

using Cpu = CpuTopology::Cpu;
using Groups = std::vector<std::vector<int>>;

constexpr int kMostCpus = 1 << 20;

// NUMA node of each local rank's GPU, followed by those of GPUs without a worker; see BindWorkers.
std::vector<int> SeatNodes(const CpuTopology& topology, int workers) {
  std::vector<int> seats;
  if (!topology.gpu_nodes.empty()) {
    const int gpus = static_cast<int>(topology.gpu_nodes.size());
    for (int i = 0; i < std::max(gpus, workers); ++i) seats.push_back(topology.gpu_nodes[i % gpus]);
    return seats;
  }
  std::set<int> distinct;
  for (const auto& [unused, cpu] : topology.cpus) distinct.insert(cpu.node);
  const std::vector<int> nodes(distinct.begin(), distinct.end());
  for (int i = 0; i < workers && !nodes.empty(); ++i) seats.push_back(nodes[i * nodes.size() / workers]);
  return seats;
}

template <typename Predicate>
std::vector<int> CpusWhere(const CpuTopology& topology, Predicate predicate) {
  std::vector<int> result;
  for (const auto& [number, cpu] : topology.cpus) {
    if (predicate(cpu)) result.push_back(number);
  }
  return result;
}

// Groups the CPUs of a NUMA node by their value of `member`.
Groups GroupsOf(const CpuTopology& topology, int node, int Cpu::*member) {
  std::map<int, std::vector<int>> groups;
  for (const auto& [number, cpu] : topology.cpus) {
    if (cpu.node == node) groups[cpu.*member].push_back(number);
  }
  Groups result;
  for (auto& [unused, group] : groups) result.push_back(std::move(group));
  return result;
}

// Index of `seat` among the seats on its node, and the number of those seats.
std::pair<int, int> IndexOnNode(const std::vector<int>& seats, int seat) {
  const auto same = [&](int node) { return node == seats[seat]; };
  return {std::count_if(seats.begin(), seats.begin() + seat, same), std::count_if(seats.begin(), seats.end(), same)};
}

absl::StatusOr<std::vector<int>> Exclusive(const CpuTopology& topology, const std::vector<int>& seats, int seat) {
  const Groups cores = GroupsOf(topology, seats[seat], &Cpu::core);
  const auto [place, sharers] = IndexOnNode(seats, seat);
  const int share = static_cast<int>(cores.size()) / sharers, rest = static_cast<int>(cores.size()) % sharers;
  if (share == 0) {
    return absl::FailedPreconditionError(absl::StrCat("NUMA node ", seats[seat], " has ", Counted(cores.size(), "core"),
                                                      " for ", sharers, " workers or GPUs: use node"));
  }
  std::vector<int> cpus;
  const int first = place * share + std::min(place, rest);
  for (int i = first; i < first + share + (place < rest ? 1 : 0); ++i) {
    cpus.insert(cpus.end(), cores[i].begin(), cores[i].end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::vector<int> CoreComplex(const CpuTopology& topology, const std::vector<int>& seats, int seat) {
  Groups caches = GroupsOf(topology, seats[seat], &Cpu::cache);
  std::stable_sort(caches.begin(), caches.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return caches[IndexOnNode(seats, seat).first % caches.size()];
}

}  // namespace

absl::StatusOr<CpuBinding> ParseCpuBinding(absl::string_view text) {
  if (text == "node") return CpuBinding::kNode;
  if (text == "socket") return CpuBinding::kSocket;
  if (text == "exclusive") return CpuBinding::kExclusive;
  if (text == "core-complex") return CpuBinding::kCoreComplex;
  return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not node, socket, exclusive or core-complex"));
}

std::optional<std::vector<int>> ParseCpuList(absl::string_view text) {
  std::vector<int> cpus;
  for (const absl::string_view part : absl::StrSplit(absl::StripAsciiWhitespace(text), ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) return std::nullopt;
    int last = first;
    if (ends.first.size() != part.size() && !absl::SimpleAtoi(ends.second, &last)) return std::nullopt;
    if (first < 0 || last < first || last >= kMostCpus) return std::nullopt;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

absl::StatusOr<std::vector<std::vector<int>>> BindWorkers(CpuBinding binding, const CpuTopology& topology,
                                                          int workers) {
  const std::vector<int> seats = SeatNodes(topology, workers);
  if (seats.empty()) return absl::FailedPreconditionError("no CPU is known that may be used");
  Groups result;
  for (int rank = 0; rank < workers; ++rank) {
    const int node = seats[rank];
    const std::vector<int> of_node = CpusWhere(topology, [node](const Cpu& cpu) { return cpu.node == node; });
    if (of_node.empty()) {
      return absl::FailedPreconditionError(absl::StrCat("none of the CPUs that this process may use is on NUMA node ",
                                                        node, ", where the GPU of local rank ", rank, " is"));
    }
    switch (binding) {
      case CpuBinding::kNone:
      case CpuBinding::kNode: result.push_back(of_node); break;
      case CpuBinding::kSocket: {
        const int socket = topology.cpus.at(of_node.front()).socket;
        result.push_back(CpusWhere(topology, [socket](const Cpu& cpu) { return cpu.socket == socket; }));
        break;
      }
      case CpuBinding::kExclusive: {
        DDPRUN_ASSIGN_OR_RETURN(std::vector<int> share, Exclusive(topology, seats, rank));
        result.push_back(std::move(share));
        break;
      }
      case CpuBinding::kCoreComplex: result.push_back(CoreComplex(topology, seats, rank)); break;
    }
  }
  return result;
}

}  // namespace ddprun::launcher

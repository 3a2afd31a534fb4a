#include "launcher/cluster/allocation.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "launcher/cluster/derived_port.h"
#include "launcher/cluster/job_place.h"
#include "launcher/cluster/variables.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

using rendezvous::kMaxNodes;

constexpr int kMaxTasks = 100'000'000;

// The first and every `stride`-th further word of each line: "node1 8 all.q" and "node1 8 node2 8" name one and two.
std::string FirstWords(absl::string_view text, size_t stride) {
  std::vector<absl::string_view> found;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    for (size_t i = 0; i < words.size() && (i == 0 || stride > 0); i += std::max<size_t>(stride, 1)) {
      found.push_back(words[i]);
    }
  }
  return absl::StrJoin(found, " ");
}

struct System {
  const char* name;
  const char* job_id;
  const char* array_index;  // of a job in an array, if its id does not have it
  const char* hosts;        // list of "host slots"; null: `file`
  const char* file;         // variable with the name of a file, whose lines begin with a host; null: `hosts`
  const char* count;        // number of hosts, if neither names them
  const char* task;         // place of a process that the system's own tool started; null: none tells it
  int first_task;
  const char* how_to_start;
};

constexpr System kSystems[] = {
    {"PBS", "PBS_JOBID", nullptr, nullptr, "PBS_NODEFILE", "PBS_NUM_NODES", "PBS_NODENUM", 0,
     "ddprun --hosts=@$PBS_NODEFILE ... or mpiexec -n N -ppn 1 ddprun ..."},
    {"LSF", "LSB_JOBID", "LSB_JOBINDEX", "LSB_MCPU_HOSTS", nullptr, nullptr, "LSF_PM_TASKID", 1,
     "ddprun --hosts=@$LSB_DJOB_HOSTFILE ... or blaunch -z \"$(sort -u $LSB_DJOB_HOSTFILE | xargs)\" ddprun ..."},
    {"Grid Engine", "JOB_ID", "SGE_TASK_ID", nullptr, "PE_HOSTFILE", "NHOSTS", nullptr, 0,
     "ddprun --hosts=$(cut -d' ' -f1 $PE_HOSTFILE | paste -sd,) ... or mpiexec -n N -ppn 1 ddprun ..."},
};

// True if the variables are there, of which JOB_ID alone may have any meaning.
bool IsThere(const EnvironmentLookup& environment, const System& system) {
  return Variable(environment, system.job_id).has_value() &&
         Variable(environment, system.hosts != nullptr ? system.hosts : system.file).has_value();
}

absl::StatusOr<Allocation> Read(const EnvironmentLookup& environment, const FileLookup& read_file,
                                const System& system) {
  Allocation result;
  result.system = system.name;
  const std::string id = *Variable(environment, system.job_id);
  if (id.size() > rendezvous::kMaxNameBytes / 2) return BadVariable(system.job_id, id, "it is too long");
  result.job_id = {id, Assignment(system.job_id, id)};
  if (system.array_index != nullptr) {
    // "0" in LSF and "undefined" in Grid Engine for a job that is in no array.
    const std::string element = Variable(environment, system.array_index).value_or("0");
    if (element != "0" && element != "undefined") absl::StrAppend(&result.job_id.value, ".", element.substr(0, 32));
  }

  const char* const source = system.hosts != nullptr ? system.hosts : system.file;
  const std::string named = *Variable(environment, source);
  const std::string names = system.hosts != nullptr ? FirstWords(named, 2) : FirstWords(read_file(named), 0);
  bool repeats = false;
  if (!names.empty()) {
    auto hosts = HostNames([&](const std::string&) { return std::optional(names); }, source);
    if (!hosts.ok()) return hosts.status();
    std::set<std::string> known;
    for (const std::string& host : **hosts) {
      if (known.insert(host).second) result.hosts.push_back(host);
    }
    repeats = result.hosts.size() < (*hosts)->size();
  }
  const auto count = FoundNumber(environment, system.count, 1, kMaxNodes);
  if (!count.ok()) return count.status();
  if (!result.hosts.empty()) {
    result.count = {static_cast<int>(result.hosts.size()), Assignment(source, named)};
  } else {
    result.count = count->value_or(Found<int>{1, Assignment(source, named)});
  }
  result.how_to_start = absl::StrReplaceAll(system.how_to_start, {{"-n N", absl::StrCat("-n ", result.count.value)}});

  // PBS_TASKNUM is 1 for the batch script, and 00000002 or the like for what pbsdsh starts.
  if (result.hosts.size() == 1 || Variable(environment, "PBS_TASKNUM").value_or("") == "1") return result;
  const auto task = FoundNumber(environment, system.task, system.first_task, kMaxTasks);
  if (!task.ok()) return task.status();
  if (!task->has_value()) return result;
  const int index = (*task)->value - system.first_task;
  if (index == 0 && result.count.value == 1) return result;  // of one host, as far as known
  result.index = Found<int>{index, (*task)->source};
  // Each line of PBS's file is a place for a process, and each slot of LSF's hosts is one.
  if (result.count.value > 1 && (repeats || index >= result.count.value)) {
    result.obstacle = absl::StrCat(system.name, " started several processes on a node (", result.count.source, ", ",
                                   (*task)->source, "): start one on each, as in ", result.how_to_start,
                                   " (ddprun starts the workers of a node itself, --nproc-per-node of them)");
  }
  return result;
}

}  // namespace

absl::StatusOr<std::optional<Allocation>> ReadAllocation(const EnvironmentLookup& environment,
                                                         const FileLookup& read_file) {
  const auto* const system = std::find_if(std::begin(kSystems), std::end(kSystems),
                                          [&](const System& one) { return IsThere(environment, one); });
  if (system == std::end(kSystems)) return std::nullopt;
  absl::StatusOr<Allocation> result = Read(environment, read_file, *system);
  if (!result.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(result.status().message(), " (", system->name, " sets this; unset ",
                                                   system->job_id, " to ignore it)"));
  }
  return std::optional(*std::move(result));
}

std::optional<Found<Endpoint>> FirstHost(const Allocation& allocation, const std::optional<PortRange>& ports) {
  if (allocation.hosts.empty()) return std::nullopt;
  return Found<Endpoint>{{allocation.hosts.front(), DerivedPort(allocation.job_id.value, ports)},
                         absl::StrCat(allocation.count.source, ", ", allocation.job_id.source)};
}

ClusterEnvironment Placed(const Allocation& allocation, const std::optional<PortRange>& ports) {
  ClusterEnvironment result;
  if (allocation.count.value == 1 && !allocation.index) return result;
  result.starter = ClusterEnvironment::Starter::kOther;
  result.job_id = allocation.job_id;
  result.endpoint = FirstHost(allocation, ports);
  const std::string job = absl::StrCat(allocation.system, " job ", allocation.job_id.value);
  if (allocation.index.has_value() && allocation.count.value == 1) {
    result.description = absl::StrCat("node ", allocation.index->value + 1, " of ", job);
    result.node_index = allocation.index;  // of an unknown number
    return result;
  }
  if (allocation.index.has_value() && allocation.obstacle.empty()) {
    SetPlace(allocation.system, allocation.count, *allocation.index, {}, result);
    result.node_index.reset();  // blaunch -z may name the hosts in another order
    return result;
  }
  result.description = absl::StrCat("one of the ", Counted(allocation.count.value, "node"), " of ", job);
  if (!allocation.obstacle.empty()) {
    result.obstacle = allocation.obstacle;
    return result;
  }
  result.remedy = absl::StrCat(allocation.system, " gave this job ", Counted(allocation.count.value, "node"), " (",
                               allocation.count.source,
                               "), but this ddprun starts workers on one of them: start it on "
                               "each, as in ",
                               allocation.how_to_start);
  return result;
}

}  // namespace ddprun::launcher

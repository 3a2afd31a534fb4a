#ifndef DDPRUN_LAUNCHER_CONFIG_CLUSTER_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_CONFIG_CLUSTER_ENVIRONMENT_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/endpoint.h"
#include "launcher/config/options.h"

// The properties of the job that its environment gives: launcher/cluster reads them, MergeEnvironment completes the
// options from them, and Resolve (launch_config.h) uses the rest.
namespace ddprun::launcher {

// Returns the value of an environment variable, if set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Returns the contents of a small file; empty if it can't be read.
using FileLookup = std::function<std::string(const std::string& path)>;

// A value and its human-readable source: "SLURM_STEP_NUM_NODES=2".
template <typename T>
struct Found {
  T value;
  std::string source;
};

// A job of a batch system: its identity, and how the system ends its processes.
struct BatchSystem {
  std::string job;                               // job id in the batch system's own commands: "1234"
  bool signals_every_process = false;            // signals sent to this launcher also go to the workers
  absl::Duration kill_wait = absl::Seconds(30);  // from its SIGTERM to its SIGKILL
  std::optional<absl::Time> end_time;            // when the job's time is over, if known
  int restart_count = 0;                         // number of times the job was requeued
};

// Properties of the job, and of this node in it, as reported by the system that started this launcher (SLURM, MPI,
// Kubernetes, a cloud platform). Unknown values are absent. Flags take precedence over all of it (MergeEnvironment).
struct ClusterEnvironment {
  enum class Starter { kNone, kSlurm, kMpi, kKubernetes, kOther };

  Starter starter = Starter::kNone;
  std::string description;  // "step 0 of SLURM job 1234, node 1 of 2"; empty if there is no starter

  std::optional<Found<int>> nnodes;
  std::optional<Found<int>> node_index;  // index of this node, from 0; node 0 hosts the server
  std::optional<Found<int>> gpus;        // GPUs of this node that this launcher may use, at least 1
  std::optional<Found<Endpoint>> endpoint;
  std::optional<Found<std::string>> job_id;
  std::optional<Found<std::string>> topology;  // sort key of nodes; nodes with a common prefix are near each other
  std::optional<Found<std::string>> host;      // this node's name, as in `hosts`
  std::vector<std::string> hosts;              // all nodes, in order; empty if unknown
  // All launchers of the job were started by one user on hosts that may run MUNGE, so they can authenticate each other
  // with it.
  bool has_munge = false;
  // The endpoint's name may not resolve for a while after the start (a Kubernetes service): retry.
  bool endpoint_appears_late = false;

  std::optional<BatchSystem> batch;

  // Explains the number of GPUs in an error about too many workers: "SLURM lets this task see 1 of ...". Empty without
  // `gpus`.
  std::string gpu_binding;

  // Set if the shape of the job can't be derived from this environment (several tasks on a node, a batch script of
  // several nodes): one line that says what to do. Ignored if flags give the shape.
  std::string obstacle;
  // Advice where this environment tells of several nodes but does not give all that a job of them needs: a whole line
  // if it can't tell which node this is (`nnodes` is absent), else how to give an endpoint.
  std::string remedy;
  // One log line each about unusual settings that may be unintended.
  std::vector<std::string> notes;
};

// Copies values of the cluster environment, with their origins, into `options` where neither a flag nor a PET_ variable
// is given:
//   - the shape of the job: the number of nodes, the endpoint, and which node hosts the server there (node 0; the
//     others connect). A given --nnodes=MIN:MAX is reduced to the number of nodes present, unless an endpoint is given
//     as well: then other nodes may join from elsewhere. --standalone, or one node, needs no shape.
//   - the job id, and the number of workers: one per GPU, if there are any.
// Returns the rest of the cluster environment (for Resolve), with notes about likely mistakes, such as a job of one
// node where the environment tells of several.
//
// InvalidArgument, one line that says what to do:
//   - the shape must come from a cluster environment that is malformed (`found` is an error), has an obstacle, or knows
//     of other nodes but not their number
//   - the cluster environment contradicts --nnodes
//   - the endpoint is localhost in a job of several hosts
//   - more workers are requested than SLURM lets this task see GPUs
absl::StatusOr<ClusterEnvironment> MergeEnvironment(absl::StatusOr<ClusterEnvironment> found, Options* options,
                                                    Origins* origins);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_CLUSTER_ENVIRONMENT_H_

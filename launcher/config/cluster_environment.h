#ifndef DDPRUN_LAUNCHER_CONFIG_CLUSTER_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_CONFIG_CLUSTER_ENVIRONMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/config/endpoint_flag.h"

namespace ddprun::launcher {

// A value, and where it was read, for people: "SLURM_STEP_NUM_NODES=2".
template <typename T>
struct Found {
  T value;
  std::string source;
};

// What a batch system does to the processes of a job on its way out.
struct BatchSystem {
  std::string job;                               // its name of the job, as its own commands take it: "1234"
  bool signals_every_process = false;            // what it sends to this launcher it sends to the workers as well
  absl::Duration kill_wait = absl::Seconds(30);  // from its SIGTERM to its SIGKILL
  std::optional<absl::Time> end_time;            // when the job's time is over, if it says so
  int restart_count = 0;                         // how often the job was requeued
};

// What the thing that started this launcher (SLURM, MPI, Kubernetes) says about the job and this node's place in it.
// Whatever is not known is absent. Flags win over all of it (merge_environment.h).
struct ClusterEnvironment {
  enum class Starter { kNone, kSlurm, kMpi, kKubernetes };

  Starter starter = Starter::kNone;
  std::string description;  // "step 0 of SLURM job 1234, node 1 of 2"; empty if there is no starter

  std::optional<Found<int>> nnodes;
  std::optional<Found<int>> node_index;  // this node's place among them, from 0; node 0 hosts the server
  std::optional<Found<int>> gpus;        // of this node that this launcher may use, at least 1
  std::optional<Found<Endpoint>> endpoint;
  std::optional<Found<std::string>> job_id;
  std::optional<Found<std::string>> topology;  // nodes are ordered by it; equal leading parts are near each other
  std::optional<Found<std::string>> host;      // this node's name, as it stands in `hosts`
  std::vector<std::string> hosts;              // of all nodes, in order; empty if not known
  // All launchers of the job were started on hosts that may have munge, by one user: they can show each other whose
  // they are.
  bool has_munge = false;
  // The name of the endpoint may be unknown for a while after the start (a Kubernetes service): try again.
  bool endpoint_appears_late = false;

  std::optional<BatchSystem> batch;

  // Why it is so many GPUs, as an error about too many workers may say it: "SLURM lets this task see 1 of ...". Empty
  // without `gpus`.
  std::string gpu_binding;

  // One line, if the shape of the job can't be taken from here, with what to do: several tasks on a node, a batch
  // script of several nodes. Of no matter to a launcher whose flags give the shape.
  std::string obstacle;
  // One line each, for the log: what is unusual and may not be meant.
  std::vector<std::string> notes;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_CLUSTER_ENVIRONMENT_H_

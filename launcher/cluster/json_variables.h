#ifndef DDPRUN_LAUNCHER_CLUSTER_JSON_VARIABLES_H_
#define DDPRUN_LAUNCHER_CLUSTER_JSON_VARIABLES_H_

#include "absl/status/statusor.h"
#include "launcher/config/cluster_environment.h"

namespace ddprun::launcher {

// Names under which WithJsonVariables has what platforms write as JSON. They are no variables, but appear like them in
// messages.
inline constexpr char kClusterSpecHosts[] = "hosts in CLUSTER_SPEC";  // "host0 host1"
inline constexpr char kClusterSpecIndex[] = "place in CLUSTER_SPEC";
inline constexpr char kClusterSpecPort[] = "port in CLUSTER_SPEC";
inline constexpr char kResourceConfigHosts[] = "hosts in resourceconfig.json";
inline constexpr char kResourceConfigHost[] = "current_host in resourceconfig.json";

// Returns `environment` with further variables:
//   - from Vertex AI's CLUSTER_SPEC, the machines that train: worker pools 0 and 1, in this order. The others
//     (parameter servers, evaluators) are no nodes of the job; there the variables are absent.
//   - from SageMaker's /opt/ml/input/config/resourceconfig.json, for containers without its training toolkit
// InvalidArgument: one line, if one of the two is malformed.
absl::StatusOr<EnvironmentLookup> WithJsonVariables(EnvironmentLookup environment, const FileLookup& read_file);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLUSTER_JSON_VARIABLES_H_

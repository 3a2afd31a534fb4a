#include "launcher/cluster/kubernetes.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "launcher/cluster/variables.h"
#include "launcher/config/options.h"
#include "rendezvous/core/limits.h"

namespace ddprun::launcher {
namespace {

constexpr char kIndex[] = "JOB_COMPLETION_INDEX";
constexpr char kGiveEndpoint[] = "with several nodes, give --rdzv-endpoint";

// Fills in what follows from the pod's name. `domain` is the rest of the full name, from the first dot on.
void AddName(const std::string& name, const std::string& domain, const std::string& source, int index,
             ClusterEnvironment& result) {
  absl::string_view job = name;
  if (!absl::ConsumeSuffix(&job, absl::StrCat("-", index)) || job.empty()) {
    result.notes.push_back(absl::StrCat("this pod is called ", name, ", which does not end in its index -", index,
                                        " (hostNetwork?): ", kGiveEndpoint));
    return;
  }
  result.job_id = Found<std::string>{std::string(job), source};
  result.host = Found<std::string>{name, source};
  absl::StrAppend(&result.description, " of Kubernetes job ", job);
  if (domain.empty()) {
    result.notes.push_back(absl::StrCat("this pod, ", name,
                                        ", has no domain, so that other pods can't find it by name: "
                                        "name a headless service as 'subdomain' in the pod's spec, or, ",
                                        kGiveEndpoint));
    return;
  }
  result.endpoint = Found<Endpoint>{{absl::StrCat(job, "-0", domain), kDefaultRdzvPort}, source};
  result.endpoint_appears_late = true;
}

}  // namespace

absl::StatusOr<std::optional<ClusterEnvironment>> DetectKubernetes(const EnvironmentLookup& environment,
                                                                   const std::string& full_name) {
  DDPRUN_ASSIGN_OR_RETURN(const auto number, FoundNumber(environment, kIndex, 0, rendezvous::kMaxNodes - 1));
  if (!number.has_value()) return std::nullopt;
  const int index = number->value;

  ClusterEnvironment result;
  result.starter = ClusterEnvironment::Starter::kKubernetes;
  result.description = absl::StrCat("pod ", index);
  result.node_index = *number;
  result.topology = Found<std::string>{absl::StrCat(index), result.node_index->source};

  const bool from_system = !full_name.empty();
  const std::string whole = from_system ? full_name : Variable(environment, "HOSTNAME").value_or("");
  if (whole.empty()) return std::optional(std::move(result));
  const std::string source = from_system ? absl::StrCat("the host's name ", whole) : Assignment("HOSTNAME", whole);
  if (const absl::StatusOr<std::string> host = ParseHost(whole); !host.ok()) {
    return BadVariable(from_system ? "the host's name" : "HOSTNAME", whole, host.status().message());
  }
  const size_t dot = whole.find('.');
  AddName(whole.substr(0, dot), dot == std::string::npos ? "" : whole.substr(dot), source, index, result);
  return std::optional(std::move(result));
}

}  // namespace ddprun::launcher

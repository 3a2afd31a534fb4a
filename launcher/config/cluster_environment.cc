#include "launcher/config/cluster_environment.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/endpoint.h"
#include "base/socket_address.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {
namespace {

bool IsAddress(absl::string_view host) { return absl::ascii_isdigit(host[0]) || IsIpv6Address(host); }

// "node1" of "node1.cluster.example".
absl::string_view FirstLabel(absl::string_view host) { return host.substr(0, host.find('.')); }

class Merger {
 public:
  Merger(ClusterEnvironment cluster, Options* options, Origins* origins)
      : cluster_(std::move(cluster)), options_(options), origins_(origins) {}

  absl::StatusOr<ClusterEnvironment> Run() {
    if (NeedsShape() && !cluster_.obstacle.empty()) return absl::InvalidArgumentError(cluster_.obstacle);
    DDPRUN_RETURN_IF_ERROR(MergeNodeCount());
    DDPRUN_RETURN_IF_ERROR(MergeEndpoint());
    DDPRUN_RETURN_IF_ERROR(MergeProcessCount());
    if (IsSeparateJob()) {
      NoteSeparateJobs();
      cluster_.topology.reset();
      cluster_.hosts.clear();
    }
    MergeJobId();
    return std::move(cluster_);
  }

  // True if the number of nodes or the endpoint must come from the cluster environment.
  bool NeedsShape() const {
    if (options_->standalone) return false;
    if (!origins_->IsGiven("nnodes")) return true;
    return options_->nnodes.max > 1 && !EndpointIsGiven();
  }

 private:
  bool EndpointIsGiven() const { return origins_->IsGiven("rdzv-endpoint") || origins_->IsGiven("master-addr"); }
  // True for a separate job, in which the other nodes of the cluster environment do not count.
  bool IsSeparateJob() const { return options_->standalone || options_->nnodes.max == 1; }
  int nodes() const { return cluster_.nnodes ? cluster_.nnodes->value : 1; }

  absl::Status MergeNodeCount() {
    if (options_->standalone || !cluster_.obstacle.empty()) return absl::OkStatus();
    if (!cluster_.nnodes) return CheckUnknownCount();
    const auto& [count, source] = *cluster_.nnodes;
    if (!origins_->IsGiven("nnodes")) {
      options_->nnodes = {count, count};
      origins_->Take("nnodes", source);
      return absl::OkStatus();
    }
    NodeCount& wanted = options_->nnodes;
    if (wanted.min > count && EndpointIsGiven()) {
      cluster_.notes.push_back(absl::StrCat(origins_->Of("nnodes"), ", but there are ", Counted(count, "node"), " (",
                                            source, "): the other nodes must join from elsewhere"));
    } else if (wanted.min > count) {
      return absl::InvalidArgumentError(absl::StrCat(origins_->Of("nnodes"), ", but there are ", Counted(count, "node"),
                                                     " (", source,
                                                     "): start it on more nodes, leave --nnodes out, or give "
                                                     "--rdzv-endpoint if the other nodes join from elsewhere"));
    } else if (wanted.max > count && wanted.max > 1 && !EndpointIsGiven()) {
      wanted.max = count;
      origins_->Give("nnodes", absl::StrCat(origins_->Of("nnodes"), ", cut to ", source));
    }
    return absl::OkStatus();
  }

  // The number of nodes is unknown, but this node is, or may be, one of several.
  absl::Status CheckUnknownCount() {
    if (origins_->IsGiven("nnodes") || !cluster_.node_index) return absl::OkStatus();
    const auto& [index, source] = *cluster_.node_index;
    const std::string text =
        absl::StrCat("this is node ", index, " (", source, "), but the number of nodes is unknown: ");
    if (index > 0) return absl::InvalidArgumentError(absl::StrCat(text, "give --nnodes=N, or --standalone"));
    cluster_.notes.push_back(absl::StrCat(text, "it runs as a separate job; give --nnodes=N for one job of all nodes"));
    return absl::OkStatus();
  }

  absl::Status MergeEndpoint() {
    if (IsSeparateJob()) return absl::OkStatus();
    if (EndpointIsGiven()) return CheckGivenEndpoint();
    if (!cluster_.endpoint || !cluster_.obstacle.empty()) {
      if (origins_->IsGiven("nnodes")) return absl::OkStatus();  // Resolve reports what is missing
      return absl::InvalidArgumentError(absl::StrCat(
          "there are ", Counted(nodes(), "node"), " (", origins_->Of("nnodes"), "), but no endpoint is known: ",
          cluster_.remedy.empty() ? "give --rdzv-endpoint=HOST[:PORT] of one of them" : cluster_.remedy));
    }
    const auto& [endpoint, source] = *cluster_.endpoint;
    if (origins_->IsGiven("master-port")) {
      options_->master_addr = endpoint.host;
      origins_->Take("master-addr", source);
    } else {
      options_->rdzv_endpoint = endpoint;
      origins_->Take("rdzv-endpoint", source);
    }
    LetNodeZeroHost();
    return absl::OkStatus();
  }

  absl::Status CheckGivenEndpoint() {
    if (!options_->more_rdzv_endpoints.empty()) return absl::OkStatus();  // no launcher hosts one of several servers
    const bool is_master = !origins_->IsGiven("rdzv-endpoint");
    const std::string flag = is_master ? "master-addr" : "rdzv-endpoint";
    const std::string& host = is_master ? *options_->master_addr : options_->rdzv_endpoint->host;
    const std::vector<std::string>& hosts = cluster_.hosts;
    const bool is_named = std::any_of(hosts.begin(), hosts.end(), [&](const std::string& other) {
      return host == other || (!IsAddress(host) && FirstLabel(host) == FirstLabel(other));
    });
    if (nodes() > 1 && IsLoopbackHost(host) && !is_named) {
      return absl::InvalidArgumentError(
          absl::StrCat(origins_->Of(flag), " is a different host on each of the ", nodes(), " nodes (",
                       cluster_.nnodes->source, "), so each node would start a separate job: ",
                       cluster_.endpoint ? "leave the flag out to use the first node" : "name one of them"));
    }
    if (!hosts.empty() && !IsAddress(host) && !is_named) {
      origins_->Give(flag, absl::StrCat(origins_->Of(flag), " (none of the job's nodes)"));
    }
    // A name that does not resolve yet can't be compared with this host's addresses.
    if (cluster_.endpoint_appears_late && cluster_.endpoint && cluster_.endpoint->value.host == host) {
      LetNodeZeroHost();
    }
    return absl::OkStatus();
  }

  void LetNodeZeroHost() {
    if (options_->rdzv_conf.is_host || !cluster_.node_index) return;
    options_->rdzv_conf.is_host = cluster_.node_index->value == 0;
    origins_->Take("is_host", cluster_.node_index->source);
  }

  absl::Status MergeProcessCount() {
    if (!cluster_.gpus) return absl::OkStatus();
    const auto& [gpus, source] = *cluster_.gpus;
    ProcessCount& count = options_->nproc_per_node;
    if (!origins_->IsGiven("nproc-per-node")) {
      // Several tasks on a node share its GPUs in a way unknown here.
      if (!cluster_.obstacle.empty()) return absl::OkStatus();
      count = {ProcessCount::Kind::kNumber, std::min(gpus, kMaxProcesses)};
      origins_->Take("nproc-per-node", source);
    } else if (count.kind == ProcessCount::Kind::kNumber && count.number > gpus && !cluster_.gpu_binding.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          origins_->Of("nproc-per-node"), ", but ", cluster_.gpu_binding, ": give srun --gpus-per-node=", count.number,
          " --ntasks-per-node=1, or set CUDA_VISIBLE_DEVICES= for workers without GPU"));
    }
    return absl::OkStatus();
  }

  // True if the environment tells of several nodes, of which this is an unknown one.
  bool IsUnplaced() const { return !cluster_.nnodes && !cluster_.remedy.empty(); }

  void NoteSeparateJobs() {
    const std::string flag = options_->standalone ? "standalone" : "nnodes";
    if (IsUnplaced() && !options_->has_hosts()) {
      const bool given = origins_->IsGiven(flag);
      cluster_.notes.push_back(given ? absl::StrCat(origins_->Of(flag), ": ", cluster_.remedy) : cluster_.remedy);
    }
    if (nodes() == 1) return;
    cluster_.notes.push_back(absl::StrCat(origins_->Of(flag), ": each of the ", nodes(), " nodes (",
                                          cluster_.nnodes->source, ") runs as a separate job"));
  }

  void MergeJobId() {
    const bool one_of_several_worlds = IsSeparateJob() && (nodes() > 1 || IsUnplaced() || !cluster_.obstacle.empty());
    if (origins_->IsGiven("rdzv-id") || !cluster_.job_id || one_of_several_worlds) return;
    options_->rdzv_id = cluster_.job_id->value;
    origins_->Take("rdzv-id", cluster_.job_id->source);
  }

  ClusterEnvironment cluster_;
  Options* const options_;
  Origins* const origins_;
};

}  // namespace

absl::StatusOr<ClusterEnvironment> MergeEnvironment(absl::StatusOr<ClusterEnvironment> found, Options* options,
                                                    Origins* origins) {
  if (found.ok()) return Merger(*std::move(found), options, origins).Run();
  if (Merger(ClusterEnvironment(), options, origins).NeedsShape()) {
    return absl::InvalidArgumentError(found.status().message());
  }
  ClusterEnvironment nothing;
  nothing.notes.emplace_back(found.status().message());
  return nothing;
}

}  // namespace ddprun::launcher

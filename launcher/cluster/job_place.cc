#include "launcher/cluster/job_place.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {

void SetPlace(absl::string_view system, Found<int> nnodes, Found<int> index, std::vector<std::string> hosts,
              ClusterEnvironment& result) {
  result.description = absl::StrCat("node ", index.value + 1, " of ", nnodes.value, " of ", system);
  if (result.job_id) absl::StrAppend(&result.description, " job ", result.job_id->value);
  result.topology = Found<std::string>{absl::StrCat(index.value), index.source};
  if (nnodes.value > 1 && hosts.size() == static_cast<size_t>(nnodes.value)) {
    result.host = Found<std::string>{hosts[index.value], index.source};
    result.hosts = std::move(hosts);
  }
  result.nnodes = std::move(nnodes);
  result.node_index = std::move(index);
}

}  // namespace ddprun::launcher

#include "launcher/cluster/json_variables.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endpoint.h"
#include "launcher/cluster/variables.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::json;
using Variables = std::map<std::string, std::string>;

constexpr char kResourceConfig[] = "/opt/ml/input/config/resourceconfig.json";

// {"cluster":{"workerpool0":["a:2222"],"workerpool1":["b:2222","c:2222"]},"task":{"type":"workerpool1","index":0},...}
absl::Status ReadClusterSpec(const std::string& text, Variables& variables) {
  const auto malformed = [&] {
    return BadVariable("CLUSTER_SPEC", text, "it is not a JSON object with the hosts of worker pools and a task");
  };
  const Json spec = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Json none = Json::object();
  const Json& pools = spec.is_object() && spec.contains("cluster") ? spec["cluster"] : none;
  const Json& task = spec.is_object() && spec.contains("task") ? spec["task"] : none;
  if (!pools.is_object() || !task.is_object()) return malformed();
  const Json type = task.value("type", none), index = task.value("index", none);
  if (!type.is_string() || !index.is_number_unsigned()) return malformed();

  std::string hosts;
  size_t count = 0;
  for (const char* const pool : {"workerpool0", "workerpool1"}) {
    const Json machines = pools.value(pool, Json::array());
    if (!machines.is_array()) return malformed();
    if (type == pool) {
      if (index.get<size_t>() >= machines.size()) return malformed();
      variables[kClusterSpecIndex] = absl::StrCat(count + index.get<size_t>());
    }
    for (const Json& machine : machines) {
      if (!machine.is_string()) return malformed();
      const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(machine.get<std::string>());
      if (!endpoint.ok()) return BadVariable("CLUSTER_SPEC", text, endpoint.status().message());
      if (count++ == 0) variables[kClusterSpecPort] = absl::StrCat(endpoint->port);
      absl::StrAppend(&hosts, count == 1 ? "" : " ", endpoint->host);
    }
  }
  variables[kClusterSpecHosts] = hosts;
  return absl::OkStatus();
}

// {"current_host":"algo-1","hosts":["algo-1","algo-2"],...}
absl::Status ReadResourceConfig(const std::string& text, Variables& variables) {
  const Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("hosts") || !config.contains("current_host") ||
      !config["current_host"].is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kResourceConfig, " is not a JSON object with hosts and current_host"));
  }
  variables[kResourceConfigHosts] = config["hosts"].dump(-1, ' ', false, Json::error_handler_t::replace);
  variables[kResourceConfigHost] = config["current_host"].get<std::string>();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<EnvironmentLookup> WithJsonVariables(EnvironmentLookup environment, const FileLookup& read_file) {
  Variables variables;
  if (const auto spec = Variable(environment, "CLUSTER_SPEC");
      spec.has_value() && Variable(environment, "CLOUD_ML_JOB_ID").has_value()) {
    if (absl::Status status = ReadClusterSpec(*spec, variables); !status.ok()) return status;
  }
  if (Variable(environment, "TRAINING_JOB_NAME").has_value() && !Variable(environment, "SM_HOSTS").has_value()) {
    const std::string config = read_file(kResourceConfig);
    if (!config.empty()) {
      if (absl::Status status = ReadResourceConfig(config, variables); !status.ok()) return status;
    }
  }
  if (variables.empty()) return environment;
  return [environment = std::move(environment), variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? environment(name) : std::optional<std::string>(found->second);
  };
}

}  // namespace ddprun::launcher

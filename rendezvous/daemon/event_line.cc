#include "rendezvous/daemon/event_line.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/signal_name.h"
#include "rendezvous/wire/event_wire.h"
#include "rendezvous/wire/message_json.h"

namespace ddprun::rendezvous {
namespace {

const char* Severity(Event::Kind kind) {
  switch (kind) {
    case Event::Kind::kJobFailed: return "ERROR";
    case Event::Kind::kRoundStopped:
    case Event::Kind::kWorkerFailed:
    case Event::Kind::kNodeLost:
    case Event::Kind::kNodeCooldown: return "WARN";
    default: return "INFO";
  }
}

// Low-cardinality error type.
std::string ErrorType(const WorkerFailure& failure) {
  if (failure.rank() < 0) return "node_lost";
  if (failure.oom_killed()) return "oom_killed";
  if (failure.signal() != 0) return SignalName(failure.signal());
  return failure.exit_code() != 0 ? absl::StrCat("exit_code_", failure.exit_code()) : "reported";
}

// An attribute, and the field of v1::Event that has its value.
struct Attribute {
  const char* field;
  const char* name;
  int unset = -1;  // number that means none; the attribute is omitted
};

constexpr Attribute kAttributes[] = {{"/number", "ddprun.event.number"},
                                     {"/job_id", "ddprun.job.id"},
                                     {"/round", "ddprun.round", 0},
                                     {"/host", "host.name"},
                                     {"/node_id", "ddprun.node.id"},
                                     {"/actor", "ddprun.actor"},
                                     {"/nodes", "ddprun.nodes", 0},
                                     {"/workers", "ddprun.workers", 0},
                                     {"/min_nodes", "ddprun.min_nodes", 0},
                                     {"/max_nodes", "ddprun.max_nodes", 0},
                                     {"/exit_code", "process.exit.code"},
                                     {"/failure/message", "exception.message"},
                                     {"/failure/traceback", "exception.stacktrace"},
                                     {"/failure/pid", "process.pid", 0},
                                     {"/failure/host", "ddprun.failure.host"},
                                     {"/failure/rank", "ddprun.rank"},
                                     {"/failure/local_rank", "ddprun.local_rank"},
                                     {"/failure/step", "ddprun.step"}};

}  // namespace

std::string EventLine(const LoggedEvent& logged) {
  const Event& event = logged.event;
  const nlohmann::json message = ToJson(ToProto(logged.number, event));
  nlohmann::ordered_json line = {{"time", message["time"]},
                                 {"event.name", message["kind"]},
                                 {"severity", Severity(event.kind)},
                                 {"service.name", "rendezvousd"},
                                 {"message", message["detail"]}};
  for (const Attribute& attribute : kAttributes) {
    const nlohmann::json::json_pointer field(attribute.field);
    if (!message.contains(field)) continue;
    const nlohmann::json& value = message[field];
    const bool unset = value.is_string() ? value.get_ref<const std::string&>().empty() : value == attribute.unset;
    if (!unset) line[attribute.name] = value;
  }
  if (!event.job_id.empty()) line["ddprun.restart_count"] = event.restart_count;
  if (event.failure.has_value()) line["error.type"] = ErrorType(*event.failure);
  return JsonText(line) + "\n";
}

EventLineKey KeyOfEventLine(absl::string_view line) {
  EventLineKey key;
  const auto value = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
  if (!value.is_object() || !value.contains("time") || !value["time"].is_string()) return key;
  key.time = value["time"].get<std::string>();
  for (const char* name : {"time", "event.name", "ddprun.job.id", "ddprun.round", "host.name", "ddprun.node.id"}) {
    absl::StrAppend(&key.text, value.contains(name) ? value[name].dump() : "", " ");
  }
  return key;
}

}  // namespace ddprun::rendezvous

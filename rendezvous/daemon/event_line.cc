#include "rendezvous/daemon/event_line.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/shown_id.h"
#include "base/signal_name.h"

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

void AddFailure(const WorkerFailure& failure, nlohmann::ordered_json* line) {
  (*line)["error.type"] = ErrorType(failure);
  if (!failure.message().empty()) (*line)["exception.message"] = failure.message();
  if (!failure.traceback().empty()) (*line)["exception.stacktrace"] = failure.traceback();
  if (failure.pid() != 0) (*line)["process.pid"] = failure.pid();
  (*line)["ddprun.failure.host"] = failure.host();
  if (failure.rank() >= 0) {
    (*line)["ddprun.rank"] = failure.rank();
    (*line)["ddprun.local_rank"] = failure.local_rank();
  }
  if (failure.has_step()) (*line)["ddprun.step"] = failure.step();
}

}  // namespace

std::string EventLine(const LoggedEvent& logged) {
  const Event& event = logged.event;
  nlohmann::ordered_json line;
  line["time"] = absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ", logged.event.time, absl::UTCTimeZone());
  line["event.name"] = std::string(Name(event.kind));
  line["severity"] = Severity(event.kind);
  line["service.name"] = "rendezvousd";
  line["message"] = event.detail;
  line["ddprun.event.number"] = logged.number;
  if (!event.job_id.empty()) line["ddprun.job.id"] = event.job_id;
  if (event.round != 0) line["ddprun.round"] = event.round;
  if (!event.host.empty()) line["host.name"] = event.host;
  if (!event.node_id.empty()) line["ddprun.node.id"] = ShownId(event.node_id);
  if (!event.actor.empty()) line["ddprun.actor"] = event.actor;
  if (event.nodes != 0) {
    line["ddprun.nodes"] = event.nodes;
    line["ddprun.workers"] = event.workers;
  }
  if (event.max_nodes != 0) {
    line["ddprun.min_nodes"] = event.min_nodes;
    line["ddprun.max_nodes"] = event.max_nodes;
  }
  if (!event.job_id.empty()) line["ddprun.restart_count"] = event.restart_count;
  if (event.exit_code.has_value()) line["process.exit.code"] = *event.exit_code;
  if (event.failure.has_value()) AddFailure(*event.failure, &line);
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
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

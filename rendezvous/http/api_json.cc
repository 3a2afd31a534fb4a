#include "rendezvous/http/api_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/shown_id.h"
#include "base/utc_text.h"
#include "base/version.h"

namespace ddprun::http {
namespace {

using nlohmann::json;
using rendezvous::JobView;
using rendezvous::Verdict;
using rendezvous::WorkerFailure;

// Texts come from launchers: invalid UTF-8 is replaced, so that this never throws.
std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// Infinite durations are null.
json Seconds(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  return std::isfinite(seconds) ? json(std::round(seconds * 1000) / 1000) : json(nullptr);
}

std::string Underscored(absl::string_view name) { return absl::StrReplaceAll(name, {{" ", "_"}}); }

absl::string_view StateName(v1::Node::State state) {
  switch (state) {
    case v1::Node::STATE_IDLE: return "idle";
    case v1::Node::STATE_RUNNING: return "running";
    case v1::Node::STATE_SUCCEEDED: return "succeeded";
    case v1::Node::STATE_STOPPING: return "stopping";
    case v1::Node::STATE_SPARE: return "spare";
    default: return "unknown";
  }
}

json ToJson(const WorkerFailure& failure) {
  json value = {{"host", failure.host()},
                {"rank", failure.rank()},
                {"local_rank", failure.local_rank()},
                {"pid", failure.pid()},
                {"exit_code", failure.exit_code()},
                {"signal", failure.signal()},
                {"restartable", failure.restartable()},
                {"oom_killed", failure.oom_killed()},
                {"ran_for_seconds", Seconds(ToDuration(failure.ran_for()))},
                {"message", failure.message()},
                {"traceback", failure.traceback()},
                {"error_file", failure.error_file()},
                {"progress", failure.progress()}};
  if (ToTime(failure.at()) > absl::UnixEpoch()) value["time"] = UtcText(ToTime(failure.at()));
  if (failure.has_step()) value["step"] = failure.step();
  return value;
}

json ToJson(const Verdict& verdict) {
  json value = {{"succeeded", verdict.succeeded()}, {"reason", verdict.reason()}, {"exit_code", verdict.exit_code()}};
  if (verdict.has_first_cause()) value["first_cause"] = ToJson(verdict.first_cause());
  return value;
}

json ToJson(const rendezvous::TrainingView& training) {
  json value = {{"step", training.step}, {"steps_behind", training.behind}};
  if (training.loss.has_value()) value["loss"] = *training.loss;
  if (training.samples.has_value()) value["samples"] = *training.samples;
  if (!training.losses.empty()) value["losses"] = training.losses;
  return value;
}

json ToJson(const rendezvous::GoodputView& goodput) {
  return {{"waiting_seconds", Seconds(goodput.waiting)},
          {"starting_seconds", Seconds(goodput.starting)},
          {"training_seconds", Seconds(goodput.training)},
          {"re_forming_seconds", Seconds(goodput.re_forming)},
          {"lost_seconds", Seconds(goodput.lost)}};
}

json ToJson(const v1::Node& node) {
  json value = {{"node_id", ShownId(node.node_id())},
                {"host", node.host()},
                {"address", node.address()},
                {"slots", node.slots()},
                {"role", node.role()},
                {"state", StateName(node.state())},
                {"group_rank", node.group_rank()},
                {"connected", node.connected()},
                {"drained", node.drained()},
                {"last_heard_seconds", Seconds(ToDuration(node.last_heard()))}};
  json ranks = json::array();
  for (const rendezvous::RankProgress& progress : node.progress()) {
    json rank = {{"rank", node.base_rank() + progress.local_rank()},
                 {"local_rank", progress.local_rank()},
                 {"step", progress.step()},
                 {"phase", progress.phase()},
                 {"since_seconds", Seconds(ToDuration(progress.ago()))}};
    if (progress.has_samples()) rank["samples"] = progress.samples();
    if (progress.has_loss()) rank["loss"] = progress.loss();
    ranks.push_back(std::move(rank));
  }
  value["ranks"] = std::move(ranks);
  return value;
}

json ToJson(const JobView& job, absl::Time start) {
  const rendezvous::JobSettings& settings = job.settings;
  json value = {{"job_id", job.job_id},
                {"owner", job.owner},
                {"state", Underscored(rendezvous::Name(job.state))},
                {"reason", job.reason},
                {"round", job.round},
                {"restart_count", job.restart_count},
                {"node_count", job.node_count},
                {"world_size", job.world_size},
                {"begin", UtcText(start + job.began.since_start())},
                {"age_seconds", Seconds(job.age)},
                {"settings",
                 {{"min_nodes", settings.min_nodes()},
                  {"max_nodes", settings.max_nodes()},
                  {"max_restarts", settings.max_restarts()},
                  {"join_timeout_seconds", Seconds(ToDuration(settings.join_timeout()))},
                  {"last_call_seconds", Seconds(ToDuration(settings.last_call()))},
                  {"heartbeat_timeout_seconds", Seconds(ToDuration(settings.heartbeat_timeout()))}}}};
  if (job.ended.has_value()) value["end"] = UtcText(start + job.ended->since_start());
  if (job.verdict.has_value()) value["verdict"] = ToJson(*job.verdict);
  if (job.goodput.has_value()) value["goodput"] = ToJson(*job.goodput);
  if (job.training.has_value()) {
    value["training"] = ToJson(*job.training);
    if (!rendezvous::IsEnd(job.state)) value["training"]["since_seconds"] = Seconds(job.training->ago);
  }
  return value;
}

}  // namespace

std::string JobsJson(const std::vector<JobView>& jobs, bool more, absl::Time start) {
  json value = {{"jobs", json::array()}};
  for (const JobView& job : jobs) value["jobs"].push_back(ToJson(job, start));
  if (more && !jobs.empty()) value["next"] = jobs.back().job_id;
  return Dump(value);
}

std::string JobJson(const JobView& job, absl::Time start) {
  json value = ToJson(job, start);
  json nodes = json::array();
  for (const v1::Node& node : job.nodes) nodes.push_back(ToJson(node));
  value["nodes"] = std::move(nodes);
  return Dump(value);
}

std::string EventJson(uint64_t number, const rendezvous::Event& event) {
  json value = {{"number", number}, {"time", UtcText(event.time)}, {"kind", std::string(rendezvous::Name(event.kind))}};
  const auto put = [&](const char* name, const std::string& text) {
    if (!text.empty()) value[name] = text;
  };
  put("job_id", event.job_id);
  put("host", event.host);
  put("detail", event.detail);
  put("actor", event.actor);
  if (!event.node_id.empty()) value["node_id"] = ShownId(event.node_id);
  if (event.round != 0) value["round"] = event.round;
  if (event.kind == rendezvous::Event::Kind::kRoundAssigned) {
    value["nodes"] = event.nodes;
    value["workers"] = event.workers;
  }
  if (event.max_nodes != 0) {
    value["min_nodes"] = event.min_nodes;
    value["max_nodes"] = event.max_nodes;
  }
  if (event.exit_code.has_value()) value["exit_code"] = *event.exit_code;
  if (event.failure.has_value()) value["failure"] = ToJson(*event.failure);
  return Dump(value);
}

std::string ServerJson(const ServerView& server) {
  return Dump({{"version", kVersion},
               {"leads", server.leads},
               {"leader", server.leader},
               {"not_ready", server.WhyNotReady()},
               {"launchers", server.launchers},
               {"age_seconds", Seconds(server.age)}});
}

std::string FollowerJson(const ServerView& server) {
  return Dump({{"error", server.WhyNotReady()}, {"leader", server.leader}});
}

std::string ErrorJson(absl::string_view message) { return Dump({{"error", std::string(message)}}); }

}  // namespace ddprun::http

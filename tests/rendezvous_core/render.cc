#include "tests/rendezvous_core/render.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::rendezvous {
namespace {

struct Renderer {
  std::string operator()(const Welcome& m) const {
    return absl::StrCat("welcome, beat every ", absl::FormatDuration(m.heartbeat_interval));
  }
  std::string operator()(const HeartbeatAck&) const { return "ack"; }
  std::string operator()(const Waiting& m) const {
    std::string text = m.spare ? "waiting as a spare:" : m.last_call ? "waiting, last call:" : "waiting:";
    absl::StrAppend(&text, " ", m.nodes_joined, " of ", m.min_nodes, ":", m.max_nodes, " nodes [",
                    absl::StrJoin(m.hosts, " "), "]");
    if (!m.spare) absl::StrAppend(&text, ", ", absl::FormatDuration(m.remaining), " left");
    if (!m.reason.empty()) absl::StrAppend(&text, " (", m.reason, ")");
    return text;
  }
  std::string operator()(const Assign& m) const {
    const Assignment& a = m.assignment;
    return absl::StrCat("assign round=", a.round, " group=", a.group_rank, "/", a.group_world_size,
                        " base=", a.base_rank, "/", a.world_size, " role=", a.base_role_rank, "/", a.role_world_size,
                        " master=", a.master_addr, ":", a.master_port, " restarts=", a.restart_count, " (", a.reason,
                        ")");
  }
  std::string operator()(const StopRound& m) const {
    return absl::StrCat("stop_round: leave round ", m.round, " (", m.reason, ")", m.first_cause ? " with cause" : "");
  }
  std::string operator()(const Finish& m) const {
    const Verdict& v = m.verdict;
    return absl::StrCat("finish ", v.succeeded ? "succeeded" : "failed", ", exit ", v.exit_code, " (", v.reason, ")",
                        v.first_cause ? absl::StrCat(" cause on ", v.first_cause->host) : "");
  }
  std::string operator()(const Rejected& m) const { return absl::StrCat("rejected: ", m.reason); }
};

absl::string_view Name(NodeView::State state) {
  switch (state) {
    case NodeView::State::kIdle: return "idle";
    case NodeView::State::kRunning: return "running";
    case NodeView::State::kSucceeded: return "succeeded";
    case NodeView::State::kStopping: return "stopping";
    case NodeView::State::kSpare: return "spare";
  }
  return "?";
}

}  // namespace

std::string Render(const ServerMessage& message) { return std::visit(Renderer{}, message); }

std::string Render(const Effect& effect, const std::string& home) {
  std::string text = effect.job_id == home ? "" : absl::StrCat(effect.job_id, "/");
  absl::StrAppend(&text, effect.node_id, effect.incarnation == 1 ? "" : absl::StrCat("#", effect.incarnation), " <- ");
  if (effect.message) absl::StrAppend(&text, Render(*effect.message));
  if (effect.close) absl::StrAppend(&text, effect.message ? ", closed" : "closed");
  return text;
}

std::string Render(const JobView& view) {
  std::string text = absl::StrCat("job ", view.job_id, ": ", Name(view.state), ", round ", view.round, ", restarts ",
                                  view.restart_count, ", nodes ", view.node_count, ", world ", view.world_size,
                                  ", age ", absl::FormatDuration(view.age));
  if (view.verdict) absl::StrAppend(&text, ", exit ", view.verdict->exit_code);
  if (!view.reason.empty()) absl::StrAppend(&text, " (", view.reason, ")");
  for (const NodeView& node : view.nodes) {
    absl::StrAppend(&text, "\n  ", node.node_id, ": ", Name(node.state), ", group rank ", node.group_rank, ", ",
                    node.slots, " slots", node.connected ? "" : ", not connected");
  }
  return text;
}

}  // namespace ddprun::rendezvous

#include "tests/rendezvous/core/render.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "rendezvous/core/job_state.h"

namespace ddprun::rendezvous {
namespace {

// The ranks of all nodes, "0,1/2", by one of an assignment's fields.
std::string Ranks(const std::vector<Tell>& tells, int32_t (Assignment::*rank)() const, int world_size) {
  return absl::StrCat(absl::StrJoin(tells, ",",
                                    [rank](std::string* out, const Tell& tell) {
                                      absl::StrAppend(out, (std::get<Assign>(tell.message).assignment().*rank)());
                                    }),
                      "/", world_size);
}

// Says all of the first message, and all ranks.
struct Renderer {
  const std::vector<Tell>& tells;

  std::string operator()(const Welcome& m) const {
    return absl::StrCat("welcome, beat every ", absl::FormatDuration(ToDuration(m.heartbeat_interval())));
  }
  std::string operator()(const HeartbeatAck&) const { return "ack"; }
  std::string operator()(const Waiting& m) const {
    std::string text = m.spare() ? "waiting as a spare:" : m.last_call() ? "waiting, last call:" : "waiting:";
    absl::StrAppend(&text, " ", m.nodes_joined(), " of ", m.min_nodes(), ":", m.max_nodes(), " nodes [",
                    absl::StrJoin(m.hosts(), " "), "]");
    if (!m.spare()) absl::StrAppend(&text, ", ", absl::FormatDuration(ToDuration(m.remaining())), " left");
    if (!m.reason().empty()) absl::StrAppend(&text, " (", m.reason(), ")");
    return text;
  }
  std::string operator()(const Assign& m) const {
    const Assignment& a = m.assignment();
    const std::string group = Ranks(tells, &Assignment::group_rank, a.group_world_size());
    const std::string base = Ranks(tells, &Assignment::base_rank, a.world_size());
    const std::string role = Ranks(tells, &Assignment::base_role_rank, a.role_world_size());
    return absl::StrCat(
        "assign round=", a.round(), " group=", group, base == group ? "" : absl::StrCat(" base=", base),
        role == base ? "" : absl::StrCat(" role=", role), " master=", a.master_addr(), ":", a.master_port(),
        " restarts=", a.restart_count(), " (", a.reason(), ")", a.keeps_workers() ? " keeps workers" : "",
        a.has_state_source()
            ? absl::StrCat(" state of rank ", a.state_source(), " at step ", (a.has_state_step() ? a.state_step() : -1))
            : "",
        a.has_server_node() ? absl::StrCat(" server in node ", a.server_node()) : "");
  }
  std::string operator()(const StopRound& m) const {
    return absl::StrCat("stop_round: leave round ", m.round(), m.at_step_end() ? " at its step's end" : "", " (",
                        m.reason(), ")", m.has_first_cause() ? " with cause" : "",
                        m.keep_workers() ? "" : ", keep no worker");
  }
  std::string operator()(const Finish& m) const {
    const Verdict& v = m.verdict();
    return absl::StrCat("finish ", v.succeeded() ? "succeeded" : "failed", ", exit ", v.exit_code(), " (", v.reason(),
                        ")", v.has_first_cause() ? absl::StrCat(" cause on ", v.first_cause().host()) : "",
                        m.runs_end_command() ? ", runs the end command" : "");
  }
  std::string operator()(const ExcludedFromRound& m) const {
    return absl::StrCat("excluded_from_round: ", m.round(), " (", m.reason(), ")");
  }
  std::string operator()(const Hang& m) const {
    static constexpr const char* kKinds[] = {"?", "hang", "hang is over", "replace", "mismatch", "straggler"};
    return absl::StrCat(kKinds[m.kind()], " in round ", m.round(), ": ",
                        absl::StrReplaceAll(m.text(), {{"\n", " | "}}));
  }
  std::string operator()(const Inspect& m) const {
    std::string after;
    for (const v1::OutputPosition& position : m.after()) {
      absl::StrAppend(&after, after.empty() ? " after " : ",", position.rank(), ":", position.end());
    }
    return absl::StrCat("inspect ranks ", absl::StrJoin(m.ranks(), ","), m.native() ? " native" : "", after,
                        " of round ", m.round());
  }
  std::string operator()(const Rejected& m) const { return absl::StrCat("rejected: ", m.reason()); }
};

absl::string_view Name(v1::Node::State state) {
  switch (state) {
    case v1::Node::STATE_IDLE: return "idle";
    case v1::Node::STATE_RUNNING: return "running";
    case v1::Node::STATE_SUCCEEDED: return "succeeded";
    case v1::Node::STATE_STOPPING: return "stopping";
    case v1::Node::STATE_SPARE: return "spare";
    default: return "?";
  }
}

std::string To(const std::string& job_id, const std::string& node_id, uint64_t incarnation, const std::string& home) {
  return absl::StrCat(job_id == home ? "" : absl::StrCat(job_id, "/"), node_id,
                      incarnation == 1 ? "" : absl::StrCat("#", incarnation));
}

struct EffectRenderer {
  const std::string& home;

  std::string operator()(const Tell& tell) const { return Render(std::vector<Tell>{tell}, home); }
  std::string operator()(const Close& close) const {
    return absl::StrCat(To(close.job_id, close.node_id, close.incarnation, home), " <- closed");
  }
  std::string operator()(const Persist& persist) const {
    const JobRecord& record = *persist.record;
    return absl::StrCat(record.job_id() == home ? "" : absl::StrCat(record.job_id(), " "), "kept: round ",
                        record.round().number(), record.round().leave_reason().empty() ? "" : " left", ", restarts ",
                        record.restarts_charged(), record.has_verdict() ? ", ended" : "");
  }
  std::string operator()(const Report& report) const {
    const Event& event = report.event;
    return absl::StrCat(event.job_id().empty() || event.job_id() == home ? "" : absl::StrCat(event.job_id(), " "),
                        "event ", event.kind(), event.round() == 0 ? "" : absl::StrCat(" round=", event.round()),
                        event.host().empty() ? "" : absl::StrCat(" host=", event.host()),
                        event.has_rank() ? absl::StrCat(" rank=", event.rank()) : "",
                        event.actor().empty() ? "" : absl::StrCat(" by ", event.actor()),
                        event.nodes() == 0 ? "" : absl::StrCat(" nodes=", event.nodes(), " workers=", event.workers()),
                        event.max_nodes() == 0 ? "" : absl::StrCat(" size=", event.min_nodes(), ":", event.max_nodes()),
                        event.has_exit_code() ? absl::StrCat(" exit=", event.exit_code()) : "", " (", event.detail(),
                        ")", event.has_failure() ? " with cause" : "");
  }
};

}  // namespace

std::string Render(const Effect& effect, const std::string& home) { return std::visit(EffectRenderer{home}, effect); }

std::string Render(const std::vector<Tell>& tells, const std::string& home) {
  const auto to = [&home](std::string* out, const Tell& tell) {
    absl::StrAppend(out, To(tell.job_id, tell.node_id, tell.incarnation, home));
  };
  return absl::StrCat(absl::StrJoin(tells, " ", to), " <- ", std::visit(Renderer{tells}, tells[0].message));
}

bool EqualButRanks(const Tell& a, const Tell& b) {
  const auto text = [](Tell tell) {
    if (auto* assign = std::get_if<Assign>(&tell.message)) {
      assign->mutable_assignment()->clear_group_rank();
      assign->mutable_assignment()->clear_base_rank();
      assign->mutable_assignment()->clear_base_role_rank();
    }
    return std::visit(Renderer{{tell}}, tell.message);
  };
  return text(a) == text(b);
}

std::string Render(const v1::Job& job) {
  std::string text = absl::StrCat("job ", job.job_id(), ": ", Name(StateOf(job)), ", round ", job.round(),
                                  ", restarts ", job.restart_count(), ", nodes ", job.node_count(), ", world ",
                                  job.world_size(), ", age ", absl::FormatDuration(ToDuration(job.age())));
  if (!job.owner().empty()) absl::StrAppend(&text, ", owner ", job.owner());
  if (job.has_verdict()) absl::StrAppend(&text, ", exit ", job.verdict().exit_code());
  if (!job.reason().empty()) absl::StrAppend(&text, " (", job.reason(), ")");
  if (job.has_hang()) {
    const bool slow = job.hang().kind() == Hang::KIND_STRAGGLER;
    absl::StrAppend(&text, slow ? ", slow: " : ", hangs: ", FirstLine(job.hang()));
  }
  for (const v1::Node& node : job.nodes()) {
    absl::StrAppend(&text, "\n  ", node.address(), ": ", Name(node.state()), ", group rank ", node.group_rank(), ", ",
                    node.slots(), " slots", node.drained() ? ", drained" : "",
                    node.connected() ? "" : ", not connected");
  }
  return text;
}

}  // namespace ddprun::rendezvous

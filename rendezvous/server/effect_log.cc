#include "rendezvous/server/effect_log.h"

#include <variant>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun::rendezvous {
namespace {

// Empty for messages that are not logged. Nodes of a job that receive the same message yield the same text.
struct Describer {
  const Tell& tell;

  std::string operator()(const Assign& assign) const {
    const Assignment& a = assign.assignment();
    if (a.group_rank() != 0) return "";
    return absl::StrCat("job ", tell.job_id, ": round ", a.round(), " assigned to ",
                        Counted(a.group_world_size(), "node"), ", ", Counted(a.world_size(), "worker"), "; store at ",
                        a.master_addr(), " port ", a.master_port(), " (", a.reason(), ")");
  }
  std::string operator()(const StopRound& stop) const {
    return absl::StrCat("job ", tell.job_id, ": stopping round ", stop.round(), ": ", stop.reason());
  }
  std::string operator()(const Finish&) const { return ""; }  // its event is logged
  std::string operator()(const Rejected& rejected) const {
    return absl::StrCat("job ", tell.job_id, ": rejected a launcher: ", rejected.reason());
  }
  std::string operator()(const ExcludedFromRound& without) const {
    return absl::StrCat("job ", tell.job_id, ": ", without.reason());
  }
  std::string operator()(const Welcome&) const { return ""; }  // the driver logs joins, with the host's name
  std::string operator()(const HeartbeatAck&) const { return ""; }
  std::string operator()(const Waiting&) const { return ""; }
};

// Describes ends of jobs and commands; empty for events that are logged as messages.
std::string Describe(const Event& event) {
  const std::string job = absl::StrCat("job ", event.job_id());
  const std::string& kind = event.kind();
  if (kind == event_kind::kJobFinished) return absl::StrCat(job, " finished: ", event.detail());
  if (kind == event_kind::kJobFailed) return absl::StrCat(job, " failed: ", event.detail());
  if (kind == event_kind::kJobStopped) return absl::StrCat(job, " ", event.detail());
  if (kind == event_kind::kJobResized || kind == event_kind::kNodeKicked)
    return absl::StrCat(job, ": ", event.detail());
  if (kind == event_kind::kHostDrained || kind == event_kind::kHostUndrained) return event.detail();
  return "";
}

}  // namespace

std::vector<std::string> DescribeEffects(const Effects& effects) {
  std::vector<std::string> lines;
  for (const Effect& effect : effects) {
    const auto* tell = std::get_if<Tell>(&effect);
    const auto* report = std::get_if<Report>(&effect);
    std::string line = tell != nullptr     ? std::visit(Describer{*tell}, tell->message)
                       : report != nullptr ? Describe(report->event)
                                           : "";
    // A job's nodes receive their messages one after the other.
    if (!line.empty() && (lines.empty() || lines.back() != line)) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace ddprun::rendezvous

#include "ddprunctl/tables.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "base/text.h"

namespace ddprun::ctl {
namespace {

constexpr size_t kMaxCellBytes = 300;

std::string Cell(const std::string& text) { return OneLine(text, kMaxCellBytes); }

// Returns "last call" for STATE_LAST_CALL.
std::string StateName(std::string name, int number) {
  if (name.empty()) return absl::StrCat("state ", number);  // sent by a newer server
  name = absl::AsciiStrToLower(absl::StripPrefix(name, "STATE_"));
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string Ago(const google::protobuf::Duration& duration) {
  const absl::Duration time = absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
  return absl::FormatDuration(absl::Trunc(time, time < absl::Minutes(1) ? absl::Milliseconds(100) : absl::Seconds(1)));
}

std::string When(const google::protobuf::Timestamp& time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(time.seconds()), absl::UTCTimeZone());
}

std::string Size(const v1::JobSettings& settings) { return MinMaxText(settings.min_nodes(), settings.max_nodes()); }

// The node's least advanced worker: the one with the smallest step.
const v1::RankProgress* Slowest(const v1::Node& node) {
  const v1::RankProgress* slowest = nullptr;
  for (const v1::RankProgress& rank : node.progress()) {
    if (slowest == nullptr || rank.step() < slowest->step()) slowest = &rank;
  }
  return slowest;
}

// "exiting for 6m10s" if the worker has reported nothing for a minute.
std::string PhaseCell(const v1::RankProgress* progress) {
  if (progress == nullptr || progress->phase().empty()) return "-";
  const bool stands = progress->ago().seconds() >= 60;
  return absl::StrCat(Cell(progress->phase()), stands ? absl::StrCat(" for ", Ago(progress->ago())) : "");
}

std::vector<std::string> NodeRow(const v1::Node& node) {
  const v1::RankProgress* progress = Slowest(node);
  return {node.node_id(),
          Cell(node.host()),
          absl::StrCat(StateName(v1::Node::State_Name(node.state()), node.state()), node.drained() ? ", drained" : "",
                       node.connected() ? "" : ", disconnected"),
          node.group_rank() < 0 ? "-" : absl::StrCat(node.group_rank()),
          absl::StrCat(node.slots()),
          progress == nullptr ? "-" : absl::StrCat(progress->step()),
          PhaseCell(progress),
          progress == nullptr || !progress->has_loss() ? "-" : absl::StrFormat("%.5g", progress->loss()),
          Ago(node.last_heard())};
}

}  // namespace

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(widths[i] - row[i].size() + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

std::string JobsTable(const std::vector<v1::Job>& jobs) {
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "STATE", "ROUND", "NODES", "SIZE", "WORKERS", "RESTARTS", "BEGIN", "DURATION", "REASON"}};
  for (const v1::Job& job : jobs) {
    rows.push_back({Cell(job.job_id()), StateName(v1::Job::State_Name(job.state()), job.state()),
                    absl::StrCat(job.round()), absl::StrCat(job.node_count()), Size(job.settings()),
                    absl::StrCat(job.world_size()),
                    absl::StrCat(job.restart_count(), "/", job.settings().max_restarts()),
                    job.has_begin() ? When(job.begin()) : "-", Ago(job.age()), Cell(job.reason())});
  }
  return Table(rows);
}

std::string NodesTable(const std::vector<JobNode>& nodes) {
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "NODE", "HOST", "STATE", "RANK", "WORKERS", "STEP", "PHASE", "LOSS", "HEARD"}};
  for (const auto& [job_id, node] : nodes) {
    std::vector<std::string> row = NodeRow(node);
    row.insert(row.begin(), Cell(job_id));
    rows.push_back(std::move(row));
  }
  return Table(rows);
}

std::string HostsTable(const v1::ListHostsResponse& hosts) {
  std::vector<std::vector<std::string>> rows = {{"HOST", "DRAINED", "NODES", "WITH RANKS"}};
  for (const v1::Host& host : hosts.hosts()) {
    rows.push_back({Cell(host.name()), host.drained() ? "yes" : "no", absl::StrCat(host.nodes()),
                    absl::StrCat(host.ranked_nodes())});
  }
  return Table(rows);
}

std::string DescribeJob(const v1::Job& job) {
  std::string text = Table({{"job", Cell(job.job_id())},
                            {"owner", job.owner().empty() ? "-" : Cell(job.owner())},
                            {"state", StateName(v1::Job::State_Name(job.state()), job.state())},
                            {"reason", Cell(job.reason())},
                            {"round", absl::StrCat(job.round())},
                            {"nodes", absl::StrCat(job.node_count(), " (size ", Size(job.settings()), ")")},
                            {"workers", absl::StrCat(job.world_size())},
                            {"restarts", absl::StrCat(job.restart_count(), "/", job.settings().max_restarts())},
                            {"begin", job.has_begin() ? When(job.begin()) : "-"},
                            {"end", job.has_end() ? When(job.end()) : "-"},
                            {"duration", Ago(job.age())}});
  if (job.has_goodput()) {
    const v1::Goodput& time = job.goodput();
    const bool reported = time.training().seconds() + time.training().nanos() + time.lost().seconds() > 0;
    absl::StrAppend(&text, "time      waiting ", Ago(time.waiting()), ", starting ", Ago(time.starting()),
                    reported ? "" : " (no step reported yet)", ", training ", Ago(time.training()), ", re-forming ",
                    Ago(time.re_forming()), ", lost ", Ago(time.lost()), "\n");
  }
  if (job.has_verdict()) absl::StrAppend(&text, Table({{"exit code", absl::StrCat(job.verdict().exit_code())}}));
  if (const std::string& traceback = job.verdict().first_cause().traceback(); !traceback.empty()) {
    absl::StrAppend(&text, "traceback\n  ", absl::StrReplaceAll(CleanText(traceback), {{"\n", "\n  "}}), "\n");
  }
  if (job.nodes().empty()) return text;
  std::vector<std::vector<std::string>> rows = {
      {"NODE", "HOST", "STATE", "RANK", "WORKERS", "STEP", "PHASE", "LOSS", "HEARD"}};
  for (const v1::Node& node : job.nodes()) rows.push_back(NodeRow(node));
  return absl::StrCat(text, "\n", Table(rows));
}

std::string EventLine(const v1::Event& event) {
  const absl::Time time = absl::FromUnixSeconds(event.time().seconds()) + absl::Nanoseconds(event.time().nanos());
  return absl::StrCat(event.number(), "  ", UtcText(time), "  ", Cell(event.kind()),
                      event.job_id().empty() ? "" : absl::StrCat("  ", Cell(event.job_id())),
                      event.round() == 0 ? "" : absl::StrCat("  round ", event.round()),
                      event.host().empty() ? "" : absl::StrCat("  ", Cell(event.host())), "  ", Cell(event.detail()),
                      "\n");
}

}  // namespace ddprun::ctl

#include "ddprunctl/tables.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "base/text.h"

namespace ddprun::ctl {
namespace {

constexpr size_t kMaxCellBytes = 300;
constexpr size_t kMostStates = 4;  // in the title of a block of stacks

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

std::string Indented(const std::string& text) {
  const std::string clean = CleanText(text);
  return absl::StrCat("  ", absl::StrReplaceAll(absl::StripSuffix(clean, "\n"), {{"\n", "\n  "}}), "\n");
}

// Frames of the Python stacks, and of each title the first word: titles also have pids and states.
std::string FoldingKey(const v1::RankStacks& stacks) {
  if (stacks.pid() == 0) return "not running";
  std::string key;
  for (const absl::string_view line : absl::StrSplit(stacks.text(), '\n')) {
    absl::StrAppend(&key, absl::StartsWith(line, " ") ? line : line.substr(0, line.find(' ')), "\n");
  }
  return key;
}

// Removes the addresses of native frames ("#3 0x7f3a12 poll (libc.so.6+0x1b)"), which differ between processes.
std::string WithoutAddresses(const std::string& native) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(native, '\n')) {
    const size_t begin = std::min(line.find(" 0x"), line.size());
    const size_t end = std::min(line.find(' ', begin + 1), line.size());
    lines.push_back(absl::StrCat(line.substr(0, begin), line.substr(end)));
  }
  return absl::StrJoin(lines, "\n");
}

// Heads the block of ranks that have the same Python stacks:
//   rank 3 (node-b, pid 5812): waits for a lock; state S
//   ranks 0, 2-7 (2 hosts): sleeps; state S (ranks 0, 2), runs; state R (ranks 3-7)
std::string StacksTitle(const std::vector<const v1::RankStacks*>& block) {
  std::set<std::string> hosts;
  std::vector<int32_t> ranks;
  std::map<std::string, std::vector<int32_t>> ranks_by_state;
  for (const v1::RankStacks* stacks : block) {
    hosts.insert(stacks->host());
    ranks.push_back(stacks->rank());
    ranks_by_state[Cell(stacks->state())].push_back(stacks->rank());
  }
  const std::string where = hosts.size() == 1 ? Cell(*hosts.begin()) : absl::StrCat(hosts.size(), " hosts");
  const bool one = block.size() == 1 && block[0]->pid() != 0;
  std::vector<std::string> states;
  for (const auto& [state, of_state] : ranks_by_state) {
    if (states.size() == kMostStates) {
      states.push_back(absl::StrCat(ranks_by_state.size() - kMostStates, " more"));
      break;
    }
    states.push_back(
        absl::StrCat(state, ranks_by_state.size() == 1 ? "" : absl::StrCat(" (", RanksText(of_state), ")")));
  }
  return absl::StrCat(RanksText(ranks), " (", where, one ? absl::StrCat(", pid ", block[0]->pid()) : "",
                      "): ", absl::StrJoin(states, ", "), "\n");
}

std::string SilentNodes(const v1::InspectResponse& response) {
  std::string text;
  for (const v1::InspectResponse::SilentNode& node : response.silent()) {
    absl::StrAppend(&text, "node ", Cell(node.host()), ": no answer: ", Cell(node.reason()), "\n");
  }
  return text;
}

// "0", "512 B", "1.5 GiB"
std::string BytesText(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  if (bytes < 0.5 && unit == 0) return "0";
  const bool whole = unit == 0 || bytes >= 99.95;
  return absl::StrCat(whole ? absl::StrFormat("%.0f", bytes) : absl::StrFormat("%.1f", bytes), " ", kUnits[unit]);
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
  if (job.has_hang()) {
    const bool slow = job.hang().kind() == v1::Hang::KIND_STRAGGLER;
    absl::StrAppend(&text, slow ? "straggler" : "hang", ", reported ", When(job.hang().at()), "\n  ",
                    absl::StrReplaceAll(CleanText(job.hang().text()), {{"\n", "\n  "}}), "\n");
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

std::string StacksText(const v1::InspectResponse& stacks) {
  std::vector<std::vector<const v1::RankStacks*>> blocks;  // in the order of their first ranks
  std::map<std::string, size_t> block_of;                  // indices in `blocks`
  for (const v1::RankStacks& rank : stacks.ranks()) {
    const auto [block, is_new] = block_of.emplace(FoldingKey(rank), blocks.size());
    if (is_new) blocks.emplace_back();
    blocks[block->second].push_back(&rank);
  }
  std::string text;
  for (const auto& block : blocks) {
    absl::StrAppend(&text, StacksTitle(block));
    const v1::RankStacks& first = *block[0];
    if (first.pid() != 0) absl::StrAppend(&text, Indented(first.text().empty() ? "no Python stack" : first.text()));
    std::map<std::string, std::vector<int32_t>> natives;
    for (const v1::RankStacks* rank : block) natives[WithoutAddresses(rank->native())].push_back(rank->rank());
    for (const auto& [native, ranks] : natives) {
      if (native.empty()) continue;
      absl::StrAppend(&text, block.size() == 1 ? "" : absl::StrCat("  ", RanksText(ranks), ":\n"), Indented(native));
    }
    absl::StrAppend(&text, "\n");
  }
  return absl::StrCat(text, SilentNodes(stacks));
}

std::string UsageTable(const v1::InspectResponse& usage) {
  std::vector<std::vector<std::string>> rows = {
      {"RANK", "HOST", "PID", "CPU", "MEMORY", "GPU", "GPU MEMORY", "NETWORK/s", "FILES/s", "COLLECTIVES/s"}};
  for (const v1::RankUsage& rank : usage.usages()) {
    const bool runs = rank.pid() != 0;
    const auto percent = [](double share) { return absl::StrFormat("%.0f%%", 100 * share); };
    rows.push_back({absl::StrCat(rank.rank()), Cell(rank.host()), runs ? absl::StrCat(rank.pid()) : "-",
                    runs ? percent(rank.cpu()) : "not running",
                    runs ? BytesText(static_cast<double>(rank.memory_bytes())) : "-",
                    rank.has_gpu() ? percent(rank.gpu()) : "-",
                    rank.has_gpu_memory_bytes() ? BytesText(static_cast<double>(rank.gpu_memory_bytes())) : "-",
                    runs ? BytesText(rank.net()) : "-", runs ? BytesText(rank.io()) : "-",
                    rank.has_collectives() ? absl::StrFormat("%.1f", rank.collectives()) : "-"});
  }
  return absl::StrCat(Table(rows), SilentNodes(usage));
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

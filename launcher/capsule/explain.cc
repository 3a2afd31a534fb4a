#include "launcher/capsule/explain.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "launcher/report/first_cause.h"
#include "launcher/report/wait_text.h"
#include "proto/time.h"
#include "rendezvous/core/phrases.h"

namespace ddprun::launcher {
namespace {

using capsule::v1::Node;
using capsule::v1::RankEnd;
using rendezvous::WorkerFailure;

constexpr char kClock[] = "%H:%M:%E3S";

std::string Indented(absl::string_view text) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    absl::StrAppend(&out, "    ", line, "\n");
  }
  return out;
}

const rendezvous::Verdict& VerdictOf(const Node& node) { return node.failure().verdict(); }

// The node whose launcher knows best why the round failed.
const Node& BestWitness(const std::vector<Node>& nodes) {
  std::vector<const Node*> witnesses;
  for (const Node& node : nodes) {
    if (VerdictOf(node).has_first_cause()) witnesses.push_back(&node);
  }
  std::vector<FailureEvidence> opinions;
  for (const Node* node : witnesses) {
    if (node->decided() && node->job_ended()) return *node;
    opinions.push_back({VerdictOf(*node).first_cause()});
  }
  for (const Node* node : witnesses) {
    if (node->decided()) return *node;
  }
  if (!witnesses.empty()) return *witnesses[ChooseFirstCause(opinions)];
  const auto knows = [](const Node& node) { return !VerdictOf(node).reason().empty() || !node.hang().empty(); };
  const auto found = std::find_if(nodes.begin(), nodes.end(), knows);
  return found != nodes.end() ? *found : nodes.front();
}

std::string Heading(const std::vector<Node>& nodes, absl::TimeZone zone) {
  const Node& first = nodes.front();
  std::string text = absl::StrCat("Job ", first.job());
  if (!first.has_assignment()) {
    absl::StrAppend(&text, ", before its first round");
  } else {
    const rendezvous::Assignment& round = first.assignment();
    absl::StrAppend(&text, ", round ", round.round(), ": ", Counted(round.world_size(), "rank"), " on ",
                    Counted(round.group_world_size(), "node"), ", restart ", round.restart_count());
  }
  if (first.has_began()) absl::StrAppend(&text, "; began ", absl::FormatTime("%F %T", ToTime(first.began()), zone));
  if (first.has_began() && first.has_at()) {
    absl::StrAppend(&text, ", ended after ", ElapsedText(ToTime(first.at()) - ToTime(first.began())));
  }
  return absl::StrCat(text, "\n");
}

std::string Cause(const Node& witness) {
  const rendezvous::Verdict& verdict = VerdictOf(witness);
  std::string text;
  absl::string_view reason = verdict.reason();
  const std::string& hang = witness.failure().hang();
  if (verdict.has_first_cause()) {
    const std::string cause = rendezvous::DescribeFailure(verdict.first_cause());
    text = absl::StrCat("First cause: ", cause, "\n");
    if (absl::ConsumePrefix(&reason, cause)) reason = absl::StripPrefix(reason, "; ");
  } else if (!hang.empty()) {
    text = absl::StrCat("Hang: ", hang, "\n");
  }
  absl::StrAppend(&text, witness.job_ended() ? "The job failed" : "The round ended", reason.empty() ? "" : ": ", reason,
                  "\n");
  if (verdict.has_first_cause() && !hang.empty()) absl::StrAppend(&text, "Before the end: ", hang, "\n");
  if (!witness.failure().hint().empty()) absl::StrAppend(&text, "Hint: ", witness.failure().hint(), "\n");
  // The other lines of the report are stacks.
  const std::pair<std::string, std::string> report = absl::StrSplit(witness.hang(), absl::MaxSplits('\n', 1));
  const std::string& details = verdict.has_first_cause() ? verdict.first_cause().traceback() : report.second;
  return details.empty() ? text : text + Indented(details);
}

bool IsFirstCause(const WorkerFailure& failure, const Node& witness) {
  const WorkerFailure& cause = VerdictOf(witness).first_cause();
  return cause.rank() >= 0 && VerdictOf(witness).has_first_cause() && failure.rank() == cause.rank() &&
         failure.pid() == cause.pid();
}

// Returns what happened on all nodes: the launchers' log lines, and the failures that these do not mention.
std::string Timeline(const std::vector<Node>& nodes, absl::TimeZone zone) {
  std::multimap<absl::Time, std::string> lines;
  size_t width = 0;
  for (const Node& node : nodes) width = std::max(width, node.host().size());
  for (const Node& node : nodes) {
    const auto add = [&](absl::Time at, absl::string_view text) {
      lines.emplace(at, absl::StrFormat("  %s  %-*s  %s\n", absl::FormatTime(kClock, at, zone), static_cast<int>(width),
                                        node.host(), text));
    };
    std::set<std::string> said;
    for (const capsule::v1::Event& event : node.events()) {
      add(ToTime(event.at()), event.text());
      said.insert(event.text());
    }
    for (const RankEnd& rank : node.ranks()) {
      if (!rank.has_failure() || rank.stopped()) continue;
      const std::string text = rendezvous::DescribeFailure(rank.failure());
      if (!said.contains(text)) add(ToTime(rank.at()), text);
    }
  }
  if (lines.empty()) return "";
  std::string text = "\nWhat happened, by the clock of each host:\n";
  for (const auto& [at, line] : lines) absl::StrAppend(&text, line);
  return text;
}

std::string EndOfRank(const RankEnd& rank, const Node& witness) {
  if (!rank.has_at()) return "had not ended";
  if (!rank.has_failure()) return "exited with code 0";
  std::string text = rendezvous::DescribeEnd(rank.failure());
  if (rank.stopped()) return absl::StrCat("stopped by the launcher: ", text);
  if (!rank.failure().message().empty()) absl::StrAppend(&text, ": ", OneLine(rank.failure().message(), 200));
  if (IsFirstCause(rank.failure(), witness)) return absl::StrCat("first cause: ", text);
  return Classify({rank.failure()}) == FailureClass::kPeerError ? absl::StrCat("lost its peers: ", text) : text;
}

// Returns a line for all ranks of a host with the same end.
std::string Ranks(const std::vector<Node>& nodes, const Node& witness) {
  std::vector<std::string> lines;
  std::map<std::string, std::vector<int32_t>> ranks;  // key: line
  for (const Node& node : nodes) {
    for (const RankEnd& rank : node.ranks()) {
      const std::string& progress = rank.failure().progress();
      std::vector<std::string> kinds;
      for (const std::string& file : rank.files()) kinds.push_back(file.substr(file.find('.') + 1));
      std::string line =
          absl::StrCat(" on ", node.host(), ": ", EndOfRank(rank, witness), progress.empty() ? "" : "; ", progress,
                       kinds.empty() ? "" : absl::StrCat(" (", absl::StrJoin(kinds, ", "), ")"), "\n");
      std::vector<int32_t>& same = ranks[line];
      if (same.empty()) lines.push_back(std::move(line));
      same.push_back(rank.rank());
    }
  }
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, "  ", RanksText(ranks[line]), line);
  return text.empty() ? "" : absl::StrCat("\nRanks, with their files rank-N.* in the capsule:\n", text);
}

// The nodes and ranks of the round without a file.
std::string Missing(const std::vector<Node>& nodes) {
  std::set<int32_t> group_ranks, ranks;
  for (const Node& node : nodes) {
    group_ranks.insert(node.assignment().group_rank());
    for (const RankEnd& rank : node.ranks()) ranks.insert(rank.rank());
  }
  const auto without = [](int32_t all, const std::set<int32_t>& found) {
    std::vector<int32_t> missing;
    for (int32_t i = 0; i < all && missing.size() < 10'000; ++i) {
      if (!found.contains(i)) missing.push_back(i);
    }
    return missing;
  };
  const rendezvous::Assignment& round = nodes.front().assignment();
  const std::vector<int32_t> missing = without(round.group_world_size(), group_ranks);
  if (missing.empty()) return "";
  return absl::StrCat("\nMissing: ", missing.size() == 1 ? "node " : "nodes ", RangesText(missing), " of ",
                      round.group_world_size(), ", with ", RanksText(without(round.world_size(), ranks)),
                      ": the launcher was lost, or it has another --log-dir\n");
}

// Settings of the nodes; equal ones once.
std::string Settings(const std::vector<Node>& nodes) {
  std::map<std::string, std::vector<std::string>> hosts;
  for (const Node& node : nodes) {
    std::string text = absl::StrCat("  ddprun ", node.version());
    for (const std::string& version : node.versions()) absl::StrAppend(&text, ", ", version);
    absl::StrAppend(&text, "\n  in ", node.folder(), ": ", node.command(), "\n");
    std::vector<std::string>& names = hosts[text];
    // Several launchers may run on a host.
    if (std::find(names.begin(), names.end(), node.host()) == names.end()) names.push_back(node.host());
  }
  std::string text = "\nSettings (environment: node-N.txtpb):\n";
  for (const auto& [settings, names] : hosts) absl::StrAppend(&text, "  on ", HostsText(names), "\n", settings);
  return text;
}

}  // namespace

std::string ExplainCapsule(std::vector<Node> nodes, absl::TimeZone time_zone) {
  std::sort(nodes.begin(), nodes.end(),
            [](const Node& a, const Node& b) { return a.assignment().group_rank() < b.assignment().group_rank(); });
  const Node& witness = BestWitness(nodes);
  // The files may come from anywhere, so their texts must not control the terminal.
  return CleanText(absl::StrCat(Heading(nodes, time_zone), "\n", Cause(witness), Timeline(nodes, time_zone),
                                Ranks(nodes, witness), Missing(nodes), Settings(nodes)));
}

}  // namespace ddprun::launcher

#include "launcher/capsule/capsule.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/text.h"
#include "launcher/hang/rank_state.h"
#include "launcher/report/wait_text.h"
#include "proto/time.h"
#include "rendezvous/core/phrases.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMaxEvents = 200;
constexpr size_t kEarlierEvents = 10;  // kept of the previous round
constexpr size_t kMaxEventBytes = 1000;
constexpr size_t kMinShare = size_t{32} << 10;

constexpr std::array<absl::string_view, 21> kPrefixes = {
    "MASTER_", "NCCL_", "TORCH", "PYTORCH_", "CUDA_",  "SLURM_",      "GLOO_",
    "OMP_",    "MKL_",  "KMP_",  "DDPRUN_",  "PET_",   "NVIDIA_",     "FI_",
    "UCX_",    "OMPI_", "PMI_",  "LD_",      "PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX"};

// FNV-1a, equal in all programs.
uint64_t Hash(absl::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

}  // namespace

std::string CapsuleName(absl::string_view job, const rendezvous::Assignment* assignment,
                        absl::string_view launcher_id) {
  std::string name(job.substr(0, 64));
  for (char& c : name) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != '_') c = '_';
  }
  const rendezvous::Assignment& round =
      assignment == nullptr ? rendezvous::Assignment::default_instance() : *assignment;
  // Several nodes without a secret have the same address.
  const bool alone = round.store_secret().empty() && round.group_world_size() <= 1;
  const std::string unique = absl::StrCat(job, " ", round.round(), " ", round.master_addr(), " ", round.master_port(),
                                          " ", round.store_secret(), alone ? launcher_id : "");
  return absl::StrFormat("%s-round-%d-%08x", name, round.round(), static_cast<uint32_t>(Hash(unique) >> 32));
}

std::string NodeFileName(int32_t group_rank) { return absl::StrCat("node-", group_rank, kNodeFileEnd); }

size_t ShareOfNode(int nodes) { return std::max(kMaxCapsuleBytes / std::max(nodes, 1), kMinShare); }

void Shorten(size_t bytes, capsule::v1::Node* node) {
  for (const size_t most : {size_t{4096}, size_t{1024}, size_t{256}}) {
    if (node->ByteSizeLong() <= bytes) return;
    for (capsule::v1::RankEnd& rank : *node->mutable_ranks()) {
      if (rank.has_failure()) rendezvous::ShortenTexts(most, rank.mutable_failure());
    }
    for (rendezvous::WorkerFailure& other : *node->mutable_failure()->mutable_others()) {
      rendezvous::ShortenTexts(most, &other);
    }
    rendezvous::Verdict& verdict = *node->mutable_failure()->mutable_verdict();
    if (verdict.has_first_cause()) rendezvous::ShortenTexts(4 * most, verdict.mutable_first_cause());
    node->set_hang(CutMiddle(node->hang(), most));
    const int excess = node->events_size() - static_cast<int>(most / 16);
    if (excess > 0) node->mutable_events()->DeleteSubrange(0, excess);
  }
  if (node->ByteSizeLong() > bytes) node->clear_environment();
}

std::vector<std::string> CapsulesToRemove(std::vector<StoredCapsule> stored, absl::string_view current) {
  const auto newest_first = [&](const StoredCapsule& a, const StoredCapsule& b) {
    if ((a.name == current) != (b.name == current)) return a.name == current;
    return a.changed != b.changed ? a.changed > b.changed : a.name > b.name;
  };
  std::sort(stored.begin(), stored.end(), newest_first);
  size_t bytes = 0, kept = 0;
  while (kept < std::min(stored.size(), kMaxCapsules)) {
    bytes += stored[kept].bytes;
    if (kept > 0 && bytes > kMaxCapsuleBytes) break;
    ++kept;
  }
  std::vector<std::string> removed;
  for (size_t i = stored.size(); i > kept; --i) removed.push_back(stored[i - 1].name);
  return removed;
}

std::vector<std::string> RelevantEnvironment(std::vector<std::string> environment) {
  std::erase_if(environment, [](const std::string& entry) {
    return std::none_of(kPrefixes.begin(), kPrefixes.end(),
                        [&](absl::string_view prefix) { return absl::StartsWith(entry, prefix); });
  });
  std::sort(environment.begin(), environment.end());
  return environment;
}

std::string LastOutput(absl::string_view output, size_t limit, const SecretMask& mask) {
  const bool cut = output.size() >= kMaskedBytes;
  const std::string masked = mask.Mask(output);
  if (masked.size() <= limit && !cut) return masked;
  // Progress bars end lines with a carriage return.
  const size_t line = masked.find_first_of("\r\n", masked.size() - std::min(masked.size(), limit + 1));
  if (line != std::string::npos && line + 1 < masked.size()) return masked.substr(line + 1);
  return masked.size() > limit ? std::string(Utf8Suffix(masked, limit)) : "";
}

std::string StackText(const hang::v1::Rank& rank, absl::string_view host) {
  const RankState state(&rank, host);
  if (!rank.has_process() && rank.groups().empty()) return "";
  std::string text = absl::StrCat("rank ", rank.rank(), " on ", host, ": ", state.Summary(), "\n");
  absl::StrAppend(&text, state.PythonStacks(), "\n", state.NativeStack(), "\n");
  for (const hang::v1::Group& group : rank.groups()) {
    absl::StrAppend(&text, GroupText(group.name()), ": ", Counted(group.entered(), "collective"), " entered\n");
    for (const hang::v1::Collective& operation : group.collectives()) {
      absl::StrAppend(&text, "  ", OperationText(operation),
                      operation.pending()
                          ? absl::StrCat(", pending for ", ElapsedText(absl::Milliseconds(operation.age_ms())))
                          : "",
                      "\n");
    }
  }
  return text;
}

void RoundRecord::BeginRound(const rendezvous::Assignment& assignment, absl::Time now) {
  if (has_round() && node_.assignment().round() == assignment.round()) return;
  node_.Clear();
  *node_.mutable_assignment() = assignment;
  *node_.mutable_began() = FromTime(now);
  ends_.clear();
  news_ = false;
  while (events_.size() > kEarlierEvents) events_.pop_front();
}

void RoundRecord::OnEvent(absl::string_view text, absl::Time now) {
  capsule::v1::Event& event = events_.emplace_back();
  event.set_text(OneLine(text, kMaxEventBytes));
  *event.mutable_at() = FromTime(now);
  if (events_.size() > kMaxEvents) events_.pop_front();
}

void RoundRecord::OnEnded(const std::vector<WorkerEnd>& ends, bool stopped, absl::Time now) {
  for (const WorkerEnd& end : ends) {
    capsule::v1::RankEnd rank;
    *rank.mutable_at() = FromTime(now);
    rank.set_stopped(stopped);
    if (end.failure) {
      rank.set_pid(end.failure->pid());
      *rank.mutable_failure() = *end.failure;
    }
    ends_[end.local_rank] = std::move(rank);
  }
}

void RoundRecord::OnReported(const rendezvous::WorkerFailure& failure) {
  rendezvous::Verdict& verdict = *node_.mutable_failure()->mutable_verdict();
  if (verdict.has_first_cause()) return;
  verdict.set_reason(rendezvous::DescribeFailure(failure));
  *verdict.mutable_first_cause() = failure;
  news_ = true;
}

void RoundRecord::OnStopRound(const rendezvous::StopRound& stop) {
  if (!has_round() || stop.round() != node_.assignment().round()) return;
  // Nothing is broken, as when a node joins or leaves.
  if (!stop.has_first_cause() && stop.at_step_end()) return;
  rendezvous::Verdict& verdict = *node_.mutable_failure()->mutable_verdict();
  if (stop.reason() == verdict.reason() && node_.decided()) return;
  verdict.set_reason(stop.reason());
  if (stop.has_first_cause()) {
    *verdict.mutable_first_cause() = stop.first_cause();
    node_.set_decided(true);
  }
  news_ = true;
}

void RoundRecord::OnRoundEnd(absl::string_view hang, absl::Time now) {
  if (!node_.has_at()) *node_.mutable_at() = FromTime(now);
  if (hang.empty() || !has_round() || node_.hang() == hang) return;
  node_.set_hang(std::string(hang));
  node_.mutable_failure()->set_hang(OneLine(hang.substr(0, hang.find('\n')), kMaxEventBytes));
  news_ = true;
}

void RoundRecord::OnJobEnd(const hosts::v1::JobFailure& failure, absl::Time now) {
  const hosts::v1::JobFailure before = node_.failure();
  *node_.mutable_failure() = failure;
  rendezvous::Verdict& verdict = *node_.mutable_failure()->mutable_verdict();
  // The job may have failed because of a round that failed before.
  if (!verdict.has_first_cause() && before.verdict().has_first_cause()) {
    *verdict.mutable_first_cause() = before.verdict().first_cause();
  } else if (verdict.has_first_cause()) {
    node_.set_decided(true);
  }
  if (verdict.reason().empty()) verdict.set_reason(before.verdict().reason());
  if (node_.failure().hang().empty()) node_.mutable_failure()->set_hang(before.hang());
  if (!node_.has_at()) *node_.mutable_at() = FromTime(now);
  node_.set_job_ended(true);
  news_ = true;
}

capsule::v1::Node RoundRecord::Take() {
  news_ = false;
  capsule::v1::Node node = node_;
  node.set_slots(slots_);
  node.set_hang(CleanText(node.hang()));
  for (int32_t local_rank = 0; has_round() && local_rank < slots_; ++local_rank) {
    const auto end = ends_.find(local_rank);
    capsule::v1::RankEnd& rank = *node.add_ranks();
    if (end != ends_.end()) rank = end->second;
    rank.set_rank(node.assignment().base_rank() + local_rank);
  }
  node.mutable_events()->Assign(events_.begin(), events_.end());
  return node;
}

}  // namespace ddprun::launcher

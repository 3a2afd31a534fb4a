#include "launcher/workers/link_peer.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/report/wait_text.h"
#include "worker_contract/worker_link.h"

namespace ddprun::launcher {
namespace {

using worker_contract::LinkHello;
using worker_contract::LinkProgress;

// docs/worker_protocol.md 2.4.
constexpr double kLinesPerSecond = 1000;
constexpr double kMostLinesAtOnce = 10 * kLinesPerSecond;

}  // namespace

std::string DescribeProgress(const ReportedProgress& reported, SteadyTime ended) {
  const LinkProgress& progress = reported.progress;
  std::string text = absl::StrCat("last reported step ", progress.step);
  if (progress.samples) absl::StrAppend(&text, ", ", *progress.samples, " samples");
  const std::string phase = OneLine(progress.phase, worker_contract::kMaxPhaseBytes);
  if (!phase.empty()) absl::StrAppend(&text, ", phase ", phase);
  if (progress.loss) absl::StrAppend(&text, ", loss ", *progress.loss);
  return absl::StrCat(text, ", ", ElapsedText(ended - reported.at), " before it ended");
}

LinkPeer::LinkPeer(int32_t rank, SteadyTime now) : rank_(rank), allowance_(kMostLinesAtOnce), last_line_(now) {}

absl::Status LinkPeer::OnBytes(absl::string_view bytes, SteadyTime now) {
  std::vector<std::string> lines;
  const absl::Status cut = reader_.Read(bytes, &lines);
  for (const std::string& line : lines) DDPRUN_RETURN_IF_ERROR(OnLine(line, now));
  return cut;
}

absl::Status LinkPeer::OnLine(absl::string_view line, SteadyTime now) {
  const double earned = kLinesPerSecond * absl::ToDoubleSeconds(now - last_line_);
  allowance_ = std::min(kMostLinesAtOnce, allowance_ + earned) - 1;
  last_line_ = now;
  if (allowance_ < 0) {
    return absl::InvalidArgumentError(absl::StrCat("it sends more than ", kLinesPerSecond, " lines a second"));
  }
  DDPRUN_ASSIGN_OR_RETURN(std::optional<worker_contract::WorkerLinkMessage> decoded,
                          worker_contract::DecodeWorkerMessage(line));
  const bool probe = decoded.has_value() && std::holds_alternative<worker_contract::LinkProbe>(*decoded);
  if (is_probe_ || (probe && hello_)) return absl::InvalidArgumentError("a probe is not the only line");
  if (probe) {
    is_probe_ = true;
    return absl::OkStatus();
  }
  const LinkHello* const hello = decoded.has_value() ? std::get_if<LinkHello>(&*decoded) : nullptr;
  if (!hello_ && hello == nullptr) return absl::InvalidArgumentError("its first line is not a hello");
  if (hello != nullptr) {
    if (hello->rank != rank_) {
      return absl::InvalidArgumentError(absl::StrCat("it says that it is rank ", hello->rank, ", not ", rank_));
    }
    hello_ = *hello;
    lines_.push_back(*hello);
    return absl::OkStatus();
  }
  if (!decoded.has_value()) return absl::OkStatus();
  if (auto* progress = std::get_if<LinkProgress>(&*decoded)) {
    // A worker that exits with an error also reports "finished"; its earlier report of that step is more informative.
    const bool says_more =
        !worker_contract::IsAfterTraining(progress->phase) || !progress_ || progress_->progress.step != progress->step;
    reports_.push_back({std::move(*progress), now});
    if (says_more) progress_ = reports_.back();
  } else {
    lines_.push_back(*std::move(decoded));
  }
  return absl::OkStatus();
}

}  // namespace ddprun::launcher

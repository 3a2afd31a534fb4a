#include "ddprunctl/output_view.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/text.h"
#include "rendezvous/core/inspection.h"

namespace ddprun::ctl {
namespace {

constexpr size_t kMaxHostBytes = 300;

}  // namespace

std::string LineText(const OutputLine& line) {
  return absl::StrCat("[rank", line.rank, " ", OneLine(line.host, kMaxHostBytes), "]: ",
                      line.gap ? absl::StrCat("... (some of its ", line.is_stderr ? "stderr" : "stdout",
                                              " is missing here: the node does not have it any more)")
                               : line.text,
                      "\n");
}

void OutputView::AddPositions(v1::Inspect* question) const {
  for (const auto& [stream, shown] : streams_) {
    v1::OutputPosition* const position = question->add_after();
    position->set_rank(stream.first);
    position->set_is_stderr(stream.second);
    position->set_end(shown.end);
  }
}

std::vector<OutputLine> OutputView::Take(const v1::InspectResponse& response, bool last) {
  std::vector<OutputLine> lines;
  for (auto output = response.outputs().begin(); output != response.outputs().end();) {
    const Stream stream(output->rank(), output->is_stderr());
    Shown& shown = streams_[stream];
    std::vector<OutputLine> of_stream;
    for (; output != response.outputs().end() && Stream(output->rank(), output->is_stderr()) == stream; ++output) {
      Feed(*output, &shown, &of_stream);
    }
    if (last && !shown.partial.empty()) Emit(stream, &shown, &of_stream);
    const size_t skipped = began_ || of_stream.size() <= lines_ ? 0 : of_stream.size() - lines_;
    std::move(of_stream.begin() + static_cast<ptrdiff_t>(skipped), of_stream.end(), std::back_inserter(lines));
  }
  began_ = true;
  for (auto& [is_stderr, ranks] : std::exchange(unseen_, {})) {
    notes_.push_back(absl::StrCat("the ", is_stderr ? "stderr" : "stdout", " of ", RanksText(ranks),
                                  " can't be shown: it does not pass through the launcher (it goes to its terminal or "
                                  "file, or nowhere), or its log file is gone; start ddprun with --log-dir"));
  }
  for (const v1::InspectResponse::SilentNode& node : response.silent()) {
    std::string note = absl::StrCat("node ", OneLine(node.host(), kMaxHostBytes),
                                    ": no answer: ", OneLine(node.reason(), kMaxHostBytes));
    if (told_.insert(note).second) notes_.push_back(std::move(note));
  }
  return lines;
}

std::vector<OutputLine> OutputView::Finish() {
  std::vector<OutputLine> lines;
  for (auto& [stream, shown] : streams_) {
    if (!shown.partial.empty()) Emit(stream, &shown, &lines);
  }
  return lines;
}

std::vector<std::string> OutputView::TakeNotes() { return std::exchange(notes_, {}); }

void OutputView::Feed(const v1::RankOutput& output, Shown* shown, std::vector<OutputLine>* lines) {
  const Stream stream(output.rank(), output.is_stderr());
  shown->host = output.host();
  shown->end = output.end();
  if (output.end() == 0) {
    if (!std::exchange(shown->unseen, true)) unseen_[output.is_stderr()].push_back(output.rank());
    return;
  }
  shown->unseen = false;
  if (output.gap()) {
    if (!shown->partial.empty()) Emit(stream, shown, lines);
    lines->push_back({output.rank(), output.host(), output.is_stderr(), /*gap=*/true, ""});
    shown->cut = true;
  }
  absl::string_view text = output.text();
  if (shown->cut) {
    const size_t end = text.find_first_of("\r\n");
    if (end == text.npos) return;
    shown->cut = false;
    text.remove_prefix(end + 1);
  }
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const size_t taken = std::min(end, kMaxLine - std::min(shown->partial.size(), kMaxLine));
    shown->partial.append(text.data(), taken);
    const bool complete = taken == end && end < text.size();
    text.remove_prefix(taken + (complete ? 1 : 0));
    if (complete || shown->partial.size() >= kMaxLine) Emit(stream, shown, lines);
  }
}

void OutputView::Emit(const Stream& stream, Shown* shown, std::vector<OutputLine>* lines) {
  lines->push_back({stream.first, shown->host, stream.second, /*gap=*/false, rendezvous::PlainLine(shown->partial)});
  shown->partial.clear();
}

}  // namespace ddprun::ctl

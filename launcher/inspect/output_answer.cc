#include "launcher/inspect/output_answer.h"

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {
namespace {

using rendezvous::RankOutput;

constexpr size_t kMaxStreamBytes = 256 << 10;
constexpr int kOffsetBits = 40;
constexpr uint64_t kOffsetMask = (uint64_t{1} << kOffsetBits) - 1;

// Adds a part of the output of `process`.
void Add(const AskedStream& asked, uint32_t process, const OutputPart& part, bool gap,
         std::vector<RankOutput>* answer) {
  absl::string_view rest = part.text;
  uint64_t end = part.begin;
  do {
    RankOutput& output = answer->emplace_back();
    output.set_rank(asked.rank);
    output.set_is_stderr(asked.is_stderr);
    const absl::string_view text = rest.substr(0, rendezvous::kMaxOutputBytes);
    output.set_text(text.data(), text.size());
    end += text.size();
    output.set_end(uint64_t{process} << kOffsetBits | (end & kOffsetMask));
    output.set_gap(gap);
    gap = false;
    rest.remove_prefix(text.size());
  } while (!rest.empty());
}

// Returns how many bytes it has added to the answer.
size_t AnswerStream(const AskedStream& asked, std::optional<absl::Duration> since, size_t max,
                    std::vector<RankOutput>* answer) {
  const OutputOfProcess &current = asked.current, &previous = asked.previous;
  const uint64_t after = asked.after.value_or(0), offset = after & kOffsetMask;
  const uint64_t process = after >> kOffsetBits;
  const bool restarted = process != 0 && process == previous.process;
  size_t bytes = 0;
  if (restarted) {
    OutputPart part = ReadOutput(previous.source, offset, max);
    const bool gap = part.found && part.begin != offset;
    bytes = part.text.size();
    if (bytes < max) {
      // All of it; its last line must not continue in the output of the next process.
      const std::string end = bytes > 0 || offset == 0 ? part.text : ReadOutput(previous.source, offset - 1, 1).text;
      if (!end.empty() && end.back() != '\n') part.text.push_back('\n');
    }
    if (!part.text.empty()) Add(asked, previous.process, part, gap, answer);
    if (bytes == max) return bytes;
  }
  if (current.process == 0 || current.source.joined) return bytes;
  const bool continues = process == current.process;
  const OutputPart part = continues   ? ReadOutput(current.source, offset, max - bytes)
                          : restarted ? ReadOutput(current.source, 0, max - bytes)
                                      : ReadOutputEnd(current.source, max, since);
  if (!part.found) {
    if (!asked.after || after != 0) {
      RankOutput& output = answer->emplace_back();
      output.set_rank(asked.rank);
      output.set_is_stderr(asked.is_stderr);
    }
    return bytes;
  }
  bool gap = part.begin != (continues ? offset : 0);
  if (since && !continues && !restarted) gap = gap && part.text.size() == max;
  if (continues && !gap && part.text.empty()) return bytes;
  Add(asked, current.process, part, gap, answer);
  return bytes + part.text.size();
}

}  // namespace

std::vector<RankOutput> AnswerOutput(const std::vector<AskedStream>& asked, std::optional<absl::Duration> since,
                                     size_t max) {
  std::vector<RankOutput> answer;
  size_t streams = asked.size();
  for (const AskedStream& stream : asked) {
    max -= AnswerStream(stream, since, std::min(kMaxStreamBytes, max / streams--), &answer);
  }
  return answer;
}

}  // namespace ddprun::launcher

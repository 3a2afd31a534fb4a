#include "ddprunctl/profile.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "rendezvous/wire/message_json.h"

namespace ddprun::ctl {
namespace {

constexpr size_t kMaxTitle = 300;
constexpr absl::string_view kOrder = " (most recent call first):";

absl::string_view BaseName(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

// Python's: `File "/a/train.py", line 31 in load`. Native ones: `#0 poll (libc.so.6+0x1b)`, perhaps with an address
// after the number and without a name.
Profile::Frame Profile::ParseFrame(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  Frame frame{std::string(line), std::string(line)};
  absl::string_view rest = line;
  if (absl::ConsumePrefix(&rest, "File \"")) {
    const size_t quote = rest.find("\", line ");
    const size_t in = rest.rfind(" in ");
    if (quote != rest.npos && in != rest.npos && in > quote) {
      frame.name = absl::StrCat(rest.substr(in + 4), " (", BaseName(rest.substr(0, quote)), ")");
    }
  } else if (absl::StartsWith(rest, "#")) {
    rest = rest.substr(std::min(rest.find(' '), rest.size()));
    if (absl::StartsWith(rest, " 0x")) rest = rest.substr(std::min(rest.find(' ', 1), rest.size()));
    const size_t offset = rest.rfind('+');
    const bool named = absl::StartsWith(rest, " ") && !absl::StartsWith(rest, " (") && offset != rest.npos;
    frame.name = absl::StrCat(absl::StripAsciiWhitespace(rest.substr(0, named ? offset : rest.npos)), named ? ")" : "");
  }
  return frame;
}

void Profile::AddStacks(int64_t at, const std::string& text, Rank* rank) {
  std::map<std::string, int> titles;  // equal titles are numbered
  Stack* stack = nullptr;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, " ")) {
      if (stack != nullptr) stack->insert(stack->begin(), ParseFrame(line));
      continue;
    }
    absl::string_view title = line;
    if (!absl::ConsumeSuffix(&title, kOrder)) {
      stack = nullptr;
      continue;
    }
    const int number = ++titles[std::string(title)];
    std::string track = number == 1 ? std::string(title) : absl::StrCat(title, " ", number);
    stack = &rank->tracks[std::move(track)].emplace_back(at, Stack()).second;
  }
}

void Profile::Add(absl::Duration at, const v1::InspectResponse& sample) {
  const int64_t micros = absl::ToInt64Microseconds(at);
  for (const v1::RankStacks& stacks : sample.ranks()) {
    Rank& rank = ranks_[stacks.rank()];
    rank.title = absl::StrCat("rank ", stacks.rank(), " (", stacks.host(), ", pid ", stacks.pid(), ")");
    // A thread that is not in this sample was in no call.
    for (auto& [title, samples] : rank.tracks) samples.emplace_back(micros, Stack());
    AddStacks(micros, stacks.text(), &rank);
    AddStacks(micros, stacks.native(), &rank);
  }
}

std::string Profile::TraceText(absl::Duration end) const {
  nlohmann::json events = nlohmann::json::array();
  for (const auto& [number, rank] : ranks_) {
    const auto name = [&, number = number](const char* what, int track, const std::string& text) {
      events.push_back({{"ph", "M"}, {"name", what}, {"pid", number}, {"tid", track}, {"args", {{"name", text}}}});
    };
    name("process_name", 0, OneLine(rank.title, kMaxTitle));
    int track = 0;
    for (const auto& [title, samples] : rank.tracks) {
      name("thread_name", ++track, OneLine(title, kMaxTitle));
      std::vector<std::pair<int64_t, Frame>> open;
      const auto close_to = [&](size_t depth, int64_t at) {
        for (; open.size() > depth; open.pop_back()) {
          const auto& [begin, frame] = open.back();
          events.push_back({{"ph", "X"},
                            {"name", frame.name},
                            {"pid", number},
                            {"tid", track},
                            {"ts", begin},
                            {"dur", at - begin},
                            {"args", {{"first at", frame.place}}}});
        }
      };
      for (size_t i = 0; i < samples.size(); ++i) {
        const auto& [at, stack] = samples[i];
        // Of two at one time, the first one is only there in case that the thread has ended.
        if (i + 1 < samples.size() && samples[i + 1].first == at) continue;
        size_t same = 0;
        while (same < std::min(open.size(), stack.size()) && open[same].second.name == stack[same].name) ++same;
        close_to(same, at);
        for (size_t depth = same; depth < stack.size(); ++depth) open.emplace_back(at, stack[depth]);
      }
      close_to(0, absl::ToInt64Microseconds(end));
    }
  }
  return rendezvous::JsonText(nlohmann::json{{"traceEvents", std::move(events)}});
}

}  // namespace ddprun::ctl

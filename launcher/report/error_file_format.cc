#include "launcher/report/error_file_format.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/core/phrases.h"
#include "worker_contract/error_file_json.h"

namespace ddprun::launcher {
namespace {

using Json = nlohmann::json;

constexpr double kLatestTimestamp = 253402300799;  // the end of the year 9999

// Leaves out the frames of tracebacks that the message quotes (a DataLoader's, torch.multiprocessing.spawn's), so that
// the error after them is kept.
std::string Message(absl::string_view text) {
  std::vector<absl::string_view> lines;
  bool in_frames = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const bool heading = absl::EndsWith(absl::StripAsciiWhitespace(line), "Traceback (most recent call last):");
    in_frames = heading || (in_frames && (line.empty() || absl::ascii_isspace(line[0])));
    if (!in_frames) lines.push_back(line);
  }
  const std::string message = OneLine(absl::StrJoin(lines, "\n"), kMaxErrorMessageBytes);
  return message.empty() ? OneLine(text, kMaxErrorMessageBytes) : message;
}

std::string Traceback(absl::string_view text) {
  const std::string clean = CleanText(text);
  return CutMiddle(absl::StripTrailingAsciiWhitespace(clean), rendezvous::kMaxTracebackBytes);
}

// True if arrays and objects are nested deeper than any error handler writes them: the JSON library recurses when it
// prints a value.
bool NestsTooDeeply(absl::string_view content) {
  constexpr int kMaxDepth = 32;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < content.size(); ++i) {
    const char c = content[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// The member of that name, or null.
const Json& Member(const Json& object, const char* name) {
  static const Json& null = *new Json();
  if (!object.is_object()) return null;
  const auto found = object.find(name);
  return found == object.end() ? null : *found;
}

// Returns a string unchanged and any other value as JSON.
std::string TextOf(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<absl::Time> TimeOf(const Json& value) {
  double seconds = 0;
  if (value.is_number()) {
    seconds = value.get<double>();
  } else if (!value.is_string() || !absl::SimpleAtod(value.get<std::string>(), &seconds)) {
    return std::nullopt;
  }
  if (!std::isfinite(seconds) || seconds <= 0 || seconds > kLatestTimestamp) return std::nullopt;
  return absl::FromUnixSeconds(static_cast<int64_t>(seconds));
}

WorkerError FromRawText(absl::string_view content) {
  WorkerError error;
  content = absl::StripAsciiWhitespace(content);
  const size_t last_line = content.find_last_of('\n');
  error.message = Message(last_line == absl::string_view::npos ? content : content.substr(last_line + 1));
  error.traceback = Traceback(content);
  return error;
}

}  // namespace

std::string FormatErrorFile(const rendezvous::WorkerFailure& failure) {
  worker_contract::ReportedError error;
  error.message = failure.message().empty() ? rendezvous::DescribeFailure(failure) : failure.message();
  error.traceback = failure.traceback();
  error.at = ToTime(failure.at()) == absl::Time() ? absl::UnixEpoch() : ToTime(failure.at());
  error.error_code = failure.signal() != 0 ? -failure.signal() : failure.exit_code();
  if (failure.rank() >= 0) {
    error.worker = {{"rank", absl::StrCat(failure.rank())},
                    {"local_rank", absl::StrCat(failure.local_rank())},
                    {"pid", absl::StrCat(failure.pid())},
                    {"host", failure.host()}};
  }
  return worker_contract::ErrorFileJson(error);
}

WorkerError ParseErrorFile(absl::string_view content) {
  if (content.size() > kMaxErrorFileBytes) {
    return FromRawText(content.substr(content.size() - kMaxErrorFileBytes));
  }
  if (NestsTooDeeply(content)) return FromRawText(content);
  const Json file = Json::parse(content.begin(), content.end(), nullptr, /*allow_exceptions=*/false);
  const Json& message = Member(file, "message");
  if (message.is_null()) return FromRawText(content);

  WorkerError error;
  if (message.is_object()) {
    const Json& inner = Member(message, "message");
    const Json& extra = Member(message, "extraInfo");
    error.message = Message(TextOf(inner.is_null() ? message : inner));
    error.traceback = Traceback(TextOf(Member(extra, "py_callstack")));
    error.raised_at = TimeOf(Member(extra, "timestamp"));
  } else {
    error.message = Message(TextOf(message));
  }
  if (!error.raised_at) error.raised_at = TimeOf(Member(file, "timestamp"));
  return error;
}

}  // namespace ddprun::launcher

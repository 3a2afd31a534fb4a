#ifndef DDPRUN_LAUNCHER_CONFIG_OUTPUT_SETTINGS_H_
#define DDPRUN_LAUNCHER_CONFIG_OUTPUT_SETTINGS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The flags for the workers' output (--log-dir, --redirects, --tee, --progress and the filters): their values, parsers,
// and what they mean for a worker. Every error of a parser is InvalidArgument: one line, without the flag's name.
namespace ddprun::launcher {

// A selection of a worker's two output streams.
struct StdStreams {
  bool out = false;
  bool err = false;

  bool any() const { return out || err; }
  friend StdStreams operator|(StdStreams a, StdStreams b) { return {a.out || b.out, a.err || b.err}; }
  friend bool operator==(StdStreams, StdStreams) = default;
};

// Streams chosen for each local rank by --redirects or --tee. Thread-compatible value type.
class StreamChoice {
 public:
  StreamChoice() = default;  // no stream of any rank
  explicit StreamChoice(StdStreams all) : others_(all) {}
  // Ranks that are not named have none.
  explicit StreamChoice(std::map<int32_t, StdStreams> by_local_rank) : by_local_rank_(std::move(by_local_rank)) {}

  StdStreams For(int32_t local_rank) const;
  // True if some local rank has a stream selected.
  bool any() const;
  // Largest local rank named; -1 if none is.
  int32_t MaxNamedRank() const { return by_local_rank_.empty() ? -1 : by_local_rank_.rbegin()->first; }

  friend bool operator==(const StreamChoice&, const StreamChoice&) = default;

 private:
  std::map<int32_t, StdStreams> by_local_rank_;
  StdStreams others_;
};

// Parses 0 (none), 1 (stdout), 2 (stderr) or 3 (both) for all workers, or a map from local rank to such a number, as in
// "0:3,12:1"; ranks that it leaves out have none.
absl::StatusOr<StreamChoice> ParseStreamChoice(absl::string_view text);

// --local-ranks-filter: the workers whose output is shown.
struct RankFilter {
  std::set<int32_t> ranks;  // empty: all
  bool global = false;      // they are ranks of the job, not of the node

  bool Shows(int32_t local_rank, int32_t rank) const {
    return ranks.empty() || ranks.contains(global ? rank : local_rank);
  }
  // The inverse of ParseRankFilter.
  std::string ToString() const;
  friend bool operator==(const RankFilter&, const RankFilter&) = default;
};

// Parses local ranks such as "0,2", or ranks of the job such as "global:0,8".
absl::StatusOr<RankFilter> ParseRankFilter(absl::string_view text);

// --duplicate-stdout-filters: parses texts such as "apple,orange", one of which a line must contain to be copied. Two
// commas are one literal comma. Empty texts are dropped.
std::vector<std::string> ParseLineFilters(absl::string_view text);

// torchrun's prefix of lines shown by --tee.
inline constexpr char kDefaultLinePrefix[] = "[${role_name}${local_rank}]:";
// Not expanded by ExpandLinePrefix: its value is known only when a line is shown (LinePrefixer).
inline constexpr char kTimeMacro[] = "${time}";

struct LinePrefixValues {
  std::string role_name;
  int32_t local_rank = 0;
  int32_t rank = 0;
  std::string hostname;
};

// Expands the macros role_name, local_rank, rank and hostname in `text`, written as in Python's string.Template:
// ${rank} or $rank. "$$" is a dollar sign; everything else is left unchanged (Template.safe_substitute).
std::string ExpandLinePrefix(absl::string_view text, const LinePrefixValues& values);

// --progress; auto shows progress if standard error is a terminal.
enum class ProgressMode { kAuto, kOn, kOff };

// Destination and form of the workers' output: parsed flags, which the launcher uses unchanged.
struct OutputSettings {
  std::string log_dir;    // empty: not given, and redirects create a fresh directory
  bool no_files = false;  // --log-dir=/dev/null: no log files and no error files; log_dir is empty
  ProgressMode progress = ProgressMode::kAuto;
  StreamChoice redirects;         // to files only
  StreamChoice tee;               // to files (if there is a log_dir) and, with a prefix, to the launcher's own streams
  RankFilter local_ranks_filter;  // workers shown on the terminal
  std::string line_prefix = kDefaultLinePrefix;  // before macros are expanded (ExpandLinePrefix)
  std::vector<std::string> stdout_filters;       // copy matching lines of `tee` to an extra file; empty: none
  std::vector<std::string> stderr_filters;

  bool has_line_filters() const { return !stdout_filters.empty() || !stderr_filters.empty(); }
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_OUTPUT_SETTINGS_H_

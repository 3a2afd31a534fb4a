#include "launcher/cluster/slurm_text.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/cluster/variables.h"
#include "launcher/config/flag_value.h"

namespace ddprun::launcher {

namespace {

constexpr int64_t kMaxKillWait = 65533;  // SLURM's limit

// Text before the first '#' that is not escaped by '\'.
absl::string_view WithoutComment(absl::string_view line) {
  size_t hash = line.find('#');
  while (hash != absl::string_view::npos && hash > 0 && line[hash - 1] == '\\') hash = line.find('#', hash + 1);
  return line.substr(0, hash);
}

void Apply(absl::string_view key, absl::string_view value, SlurmConf& conf) {
  if (absl::EqualsIgnoreCase(key, "KillWait")) {
    const absl::StatusOr<int64_t> seconds = ParseInteger(value, 0, kMaxKillWait);
    if (seconds.ok()) conf.kill_wait = absl::Seconds(*seconds);
  } else if (absl::EqualsIgnoreCase(key, "ProctrackType")) {
    conf.signals_every_process = absl::EqualsIgnoreCase(value, "proctrack/linuxproc");
  }
}

// Applies the first KEY=VALUE of `line`, which may have blanks around the '=' and quotes around the value, to `conf`.
// Returns the rest of the line; empty if there is no further '='.
absl::string_view TakePair(absl::string_view line, SlurmConf& conf) {
  const size_t equals = line.find('=');
  if (equals == absl::string_view::npos) return "";
  const absl::string_view before = absl::StripTrailingAsciiWhitespace(line.substr(0, equals));
  const absl::string_view key = before.substr(before.find_last_of(" \t") + 1);  // npos + 1 is 0
  absl::string_view rest = absl::StripLeadingAsciiWhitespace(line.substr(equals + 1));
  const bool quoted = absl::StartsWith(rest, "\"");
  if (quoted) rest.remove_prefix(1);
  const size_t end = std::min(rest.find_first_of(quoted ? "\"" : " \t\r"), rest.size());
  Apply(key, rest.substr(0, end), conf);
  return rest.substr(std::min(end + 1, rest.size()));
}

}  // namespace

std::optional<absl::Time> ReadEndTime(absl::string_view squeue, absl::string_view job, absl::TimeZone zone) {
  for (absl::string_view line : absl::StrSplit(squeue, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() != 3 || words[0] != job || words[2] == "UNLIMITED") continue;
    absl::Time end;
    std::string error;
    if (absl::ParseTime("%Y-%m-%dT%H:%M:%S", words[1], zone, &end, &error)) return end;
  }
  return std::nullopt;
}

SlurmConf ParseSlurmConf(absl::string_view text) {
  SlurmConf conf;
  const std::string joined = absl::StrReplaceAll(text, {{"\\\r\n", " "}, {"\\\n", " "}});
  for (const absl::string_view line : absl::StrSplit(joined, '\n')) {
    absl::string_view rest = WithoutComment(line);
    while (!rest.empty()) rest = TakePair(rest, conf);
  }
  return conf;
}

std::vector<std::string> SlurmConfPaths(const EnvironmentLookup& environment) {
  if (const std::optional<std::string> given = Variable(environment, "SLURM_CONF"); given.has_value()) return {*given};
  // In order: packages, nodes that fetch it from the controller (configless), manual installations.
  return {"/etc/slurm/slurm.conf",
          "/run/slurm/conf/slurm.conf",
          "/var/spool/slurmd/conf-cache/slurm.conf",
          "/var/spool/slurm/d/conf-cache/slurm.conf",
          "/etc/slurm-llnl/slurm.conf",
          "/usr/local/etc/slurm.conf",
          "/opt/slurm/etc/slurm.conf"};
}

void MergeSlurmConf(const SlurmConf& conf, BatchSystem& batch) {
  batch.kill_wait = conf.kill_wait;
  batch.signals_every_process = batch.signals_every_process && conf.signals_every_process;
}

}  // namespace ddprun::launcher

#ifndef DDPRUN_LAUNCHER_CONFIG_OUTPUT_SETTINGS_H_
#define DDPRUN_LAUNCHER_CONFIG_OUTPUT_SETTINGS_H_

#include <string>
#include <vector>

#include "launcher/config/line_prefix.h"
#include "launcher/config/output_filter.h"
#include "launcher/config/std_streams.h"

namespace ddprun::launcher {

// --progress; auto shows progress if standard error is a terminal.
enum class ProgressMode { kAuto, kOn, kOff };

// Destination and form of the workers' output: parsed flags, which the launcher uses unchanged.
struct OutputSettings {
  std::string log_dir;    // empty: not given, and redirects create a fresh directory
  bool no_files = false;  // --log-dir=/dev/null: no log files and no error files; log_dir is empty
  ProgressMode progress = ProgressMode::kAuto;
  StreamChoice redirects;         // to files only
  StreamChoice tee;               // to files (if there is a log_dir) and, with a prefix, to the launcher's own streams
  RankFilter local_ranks_filter;  // workers whose output is shown
  std::string line_prefix = kDefaultLinePrefix;  // before macros are expanded (line_prefix.h)
  std::vector<std::string> stdout_filters;       // copy matching lines of `tee` to an extra file; empty: none
  std::vector<std::string> stderr_filters;

  bool has_line_filters() const { return !stdout_filters.empty() || !stderr_filters.empty(); }
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CONFIG_OUTPUT_SETTINGS_H_

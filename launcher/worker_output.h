#ifndef DDPRUN_LAUNCHER_WORKER_OUTPUT_H_
#define DDPRUN_LAUNCHER_WORKER_OUTPUT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/core/launch_config.h"
#include "launcher/os/error_file.h"
#include "launcher/os/log_pump.h"
#include "launcher/os/unique_fd.h"

namespace ddprun::launcher {

// What one worker writes to. Descriptors that are not valid stand for the launcher's own streams.
struct WorkerStreams {
  UniqueFd out;
  UniqueFd err;
  ErrorFile error_file;
};

// Opens files and pipes for workers, as --log-dir, --redirects and --tee ask for. Files lie in
//   LOG_DIR/<job id>_<8 random digits>/attempt_<restart count>/<local rank>/{stdout.log,stderr.log,error.json}
// as torchrun has them; a later round of the same attempt appends. Thread-compatible.
class WorkerOutput {
 public:
  // `config` and `pump` must outlive it. Makes the job's folder, if files are asked for; in a new folder of the
  // temporary directory if --redirects is given without --log-dir (and says where). InvalidArgument, naming the folder:
  // it can't be made.
  static absl::StatusOr<WorkerOutput> Create(const LaunchConfig* config, LogPump* pump);

  absl::StatusOr<WorkerStreams> Open(int restart_count, int32_t local_rank);

 private:
  WorkerOutput(const LaunchConfig* config, LogPump* pump) : config_(config), pump_(pump) {}
  absl::StatusOr<UniqueFd> OpenStream(const std::string& folder, const char* file, bool redirect, bool tee,
                                      int console_fd, const std::string& prefix);

  const LaunchConfig* config_;
  LogPump* pump_;
  std::string job_folder_;  // empty: no files
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKER_OUTPUT_H_

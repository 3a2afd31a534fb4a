#ifndef DDPRUN_LAUNCHER_WORKER_OUTPUT_H_
#define DDPRUN_LAUNCHER_WORKER_OUTPUT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
// as torchrun has them, with filtered_{stdout,stderr}.log in the attempt's folder; a later round of the same attempt
// appends. Thread-compatible.
class WorkerOutput {
 public:
  // `config` and `pump` must outlive it; `host` is this node's name, `launcher_id` that of this launcher alone. Makes
  // the job's folder, if files are asked for; in a new folder of the temporary directory if they are without --log-dir
  // (and says where). InvalidArgument, naming the folder: it can't be made.
  static absl::StatusOr<WorkerOutput> Create(const LaunchConfig* config, const std::string& host,
                                             const std::string& launcher_id, LogPump* pump);

  // `rank`: the worker's in the job.
  absl::StatusOr<WorkerStreams> Open(int restart_count, int32_t local_rank, int32_t rank);

 private:
  // One output stream of one worker.
  struct Stream {
    const char* name;  // "stdout"
    int console_fd;    // the launcher's own
    bool redirect;
    bool tee;
    bool shown;  // by --local-ranks-filter
    const std::vector<std::string>& filters;
  };

  WorkerOutput(const LaunchConfig* config, const std::string& host, const std::string& launcher_id, LogPump* pump)
      : config_(config), host_(host), pump_(pump), error_folder_(std::make_unique<ErrorFolder>(launcher_id)) {}
  absl::StatusOr<UniqueFd> OpenStream(const std::string& attempt_folder, const std::string& folder,
                                      const Stream& stream, const std::string& prefix);

  const LaunchConfig* config_;
  std::string host_;
  LogPump* pump_;
  std::string job_folder_;                     // empty: no files
  std::unique_ptr<ErrorFolder> error_folder_;  // then
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKER_OUTPUT_H_

#ifndef DDPRUN_LAUNCHER_WORKERS_WORKER_OUTPUT_H_
#define DDPRUN_LAUNCHER_WORKERS_WORKER_OUTPUT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/config/launch_config.h"
#include "launcher/io/error_file.h"
#include "launcher/io/event_loop.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/io/log_pump.h"
#include "launcher/io/output_source.h"
#include "launcher/workers/worker_set.h"

namespace ddprun::launcher {

// Streams of one worker. An invalid descriptor stands for the launcher's own stream.
struct WorkerStreams {
  UniqueFd out;
  UniqueFd err;
  ErrorFile error_file;
  std::function<std::string()> error_tail;  // returns the last bytes written to stderr; null: they are not known
  OutputSource out_source, err_source;      // where their output can be read
};

// Opens files and pipes for workers, according to --log-dir, --redirects and --tee. Files have the same paths as
// torchrun's,
//   LOG_DIR/<job id>_<8 random digits>/attempt_<restart count>/<local rank>/{stdout.log,stderr.log,error.json}
// plus filtered_{stdout,stderr}.log in the attempt's folder; a later round of the same attempt appends. Folders and
// files are created on a separate thread, because a network file system may stall.
//
// A worker's stderr that goes to the launcher's own passes through the pump, which keeps its end, unless that is a
// terminal: isatty must not change for the worker. If the launcher's stdout is the same file, the worker's stdout uses
// the same pipe, so that the order of its output is kept. Workers whose daemons may outlive the launcher get its own
// streams.
//
// Belongs to the loop's thread.
class WorkerOutput {
 public:
  // `loop` and `pump` must outlive the result; `host` is this node's name, `launcher_id` that of this launcher alone.
  // Creates the job's folder if files are requested; without --log-dir, in a new temporary folder whose path is logged.
  // InvalidArgument, naming the folder: it can't be created.
  static absl::StatusOr<WorkerOutput> Create(const LaunchConfig& config, const std::string& host,
                                             const std::string& launcher_id, EventLoop* loop, LogPump* pump);

  // Opens the streams of these local ranks; `base_rank` is the job-wide rank of local rank 0. `done` is called later
  // with one entry per rank, unless Open is called again or this object is destroyed first.
  using Done = std::function<void(std::vector<absl::StatusOr<WorkerStreams>>)>;
  void Open(int restart_count, int32_t base_rank, const LocalRanks& ranks, Done done);

  // Removes the folder of error files, even if Open still runs on its thread. No Open may follow.
  void Close();

 private:
  class Files;
  // One output stream of one worker: a descriptor for the worker, or the sink for the pump.
  struct Stream {
    UniqueFd direct;
    std::optional<LogSink> sink;
    std::string path;  // file that receives all of it
    int64_t from = 0;  // size of that file before
  };
  struct Opened {
    Stream out;
    Stream err;
    bool shared;  // `err` is for both
    ErrorFile error_file;
  };

  WorkerOutput(std::shared_ptr<Files> files, EventLoop* loop, LogPump* pump)
      : files_(std::move(files)), loop_(loop), pump_(pump) {}
  static absl::StatusOr<WorkerStreams> Connect(absl::StatusOr<Opened> opened, LogPump* pump);

  std::shared_ptr<Files> files_;
  EventLoop* loop_;
  LogPump* pump_;
  std::unique_ptr<BackgroundCall<std::vector<absl::StatusOr<Opened>>>> opening_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WORKERS_WORKER_OUTPUT_H_

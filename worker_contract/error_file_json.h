#ifndef DDPRUN_WORKER_CONTRACT_ERROR_FILE_JSON_H_
#define DDPRUN_WORKER_CONTRACT_ERROR_FILE_JSON_H_

#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace ddprun::worker_contract {

// The error of a worker, as its error file has it. Texts may have invalid UTF-8, which is replaced.
struct ReportedError {
  std::string message;
  std::string traceback;                      // may be empty
  absl::Time at;                              // whole seconds are kept
  std::optional<int> error_code;              // the exit code, or minus the signal
  std::map<std::string, std::string> worker;  // which worker it is, for programs that read the file of a whole job
};

// Returns the content of an error file (TORCHELASTIC_ERROR_FILE) in the format of torchrun's error handler.
// crash_report.h writes the same form in a signal handler, where neither memory nor a library may be used.
std::string ErrorFileJson(const ReportedError& error);

}  // namespace ddprun::worker_contract

#endif  // DDPRUN_WORKER_CONTRACT_ERROR_FILE_JSON_H_

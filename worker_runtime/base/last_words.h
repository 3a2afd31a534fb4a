#ifndef DDPRUN_WORKER_RUNTIME_BASE_LAST_WORDS_H_
#define DDPRUN_WORKER_RUNTIME_BASE_LAST_WORDS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// How a worker says why it failed: a line on stderr, and the launcher's error file (TORCHELASTIC_ERROR_FILE), from
// which the failure summary on every node quotes. Thread-safe.
namespace ddprun {

// The content of the error file, in the form that torchrun's handler writes.
std::string ErrorFileJson(absl::string_view message, absl::Time now);

// Says "rank 1: <message>" on stderr in one write, and to `error_file` if that is not empty. A file that can't be
// written is no further error: there is nobody left to tell.
void SayLastWords(int rank, const std::string& error_file, const absl::Status& status);

// From now on an exception that nobody catches, as one of a library's own thread, is told by SayLastWords before the
// process ends with SIGABRT. Gloo ends processes so when ranks pass tensors of different sizes; the text explains it.
void SayLastWordsOnTerminate(int rank, const std::string& error_file);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_RUNTIME_BASE_LAST_WORDS_H_

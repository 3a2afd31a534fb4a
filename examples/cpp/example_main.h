#ifndef DDPRUN_EXAMPLES_CPP_EXAMPLE_MAIN_H_
#define DDPRUN_EXAMPLES_CPP_EXAMPLE_MAIN_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/process_group/process_group.h"
#include "worker_runtime/worker.h"

// What all examples' mains have in common.
namespace examples {

// Reads the command line into what was added to `app`. Ends the process after --help (exit code 0), and after a bad
// flag with one line on stderr (exit code 2).
void ParseFlags(CLI::App& app, int argc, char** argv);

// Checks for flags, which say what a value must be.
CLI::Validator AtLeast(int least);
CLI::Validator Positive();

// One of the flags can't be: the same end.
[[noreturn]] void UsageError(absl::string_view message);

// Flags that several examples have.
struct CommonFlags {
  std::string backend = "auto";
  int spawn = 0;
};
void AddCommonFlags(CLI::App& app, CommonFlags* flags);

// The group that --backend stands for: "gloo" on the CPU, "nccl" on the GPU of this worker's local rank, "auto" on that
// GPU if there is one. `device` of it is for the trainer's tensors too. Ends the process if that can't be had.
ddprun::ProcessGroupOptions GroupFor(const CommonFlags& flags);

// Runs `body` in this process, which a launcher started as one of several; or, if `spawn` is not 0, in that many
// workers that this process starts. Returns the exit code for main, or ends the process itself.
int Run(int spawn, const ddprun::ProcessGroupOptions& options, absl::FunctionRef<absl::Status(ddprun::Worker&)> body);

// Prints one line by one write, so that the lines of several workers never mix.
void Say(absl::string_view text);

}  // namespace examples

#endif  // DDPRUN_EXAMPLES_CPP_EXAMPLE_MAIN_H_

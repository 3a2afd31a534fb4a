#ifndef DDPRUN_EXAMPLES_CPP_EXAMPLE_MAIN_H_
#define DDPRUN_EXAMPLES_CPP_EXAMPLE_MAIN_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker_runtime/worker.h"

// Shared by the main functions of all examples.
namespace examples {

// Parses the command line into the options of `app`. Exits after --help (exit code 0), and after an invalid flag with
// one line on stderr (exit code 2).
void ParseFlags(CLI::App& app, int argc, char** argv);

// Validators for flags; their messages say what a value must be.
CLI::Validator AtLeast(int least);
CLI::Validator Positive();

// Exits like ParseFlags after an invalid flag.
[[noreturn]] void UsageError(absl::string_view message);

// Flags that several examples have.
struct CommonFlags {
  std::string backend = "auto";
  int spawn = 0;
};
void AddCommonFlags(CLI::App& app, CommonFlags* flags);

// The device for --backend: "gloo" is the CPU, "nccl" the GPU of a worker's local rank, "auto" that GPU if there is
// one. Exits like ParseFlags if it is none of them.
std::string DeviceFor(const CommonFlags& flags);

// Runs `body` in this process, if a launcher started it; or, if `spawn` is not 0, in that many workers that this
// process starts. Returns the exit code for main, or exits itself.
int Run(int spawn, const ddprun::WorkerOptions& options, absl::FunctionRef<absl::Status(ddprun::Worker&)> body);

// The main function of an example: adds the common flags to those of `app`, parses all and runs `body`. `options`
// needs no device. `common`: values of the common flags where none are given.
int Main(CLI::App& app, int argc, char** argv, absl::FunctionRef<absl::Status(ddprun::Worker&)> body,
         ddprun::WorkerOptions options = {}, CommonFlags common = {});

// Prints one line with one write, so that lines of several workers never mix.
void Say(absl::string_view text);

}  // namespace examples

#endif  // DDPRUN_EXAMPLES_CPP_EXAMPLE_MAIN_H_

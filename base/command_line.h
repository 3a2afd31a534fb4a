#ifndef DDPRUN_BASE_COMMAND_LINE_H_
#define DDPRUN_BASE_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Wrappers that turn CLI11's exceptions into return values.
namespace ddprun {

// CLI11's message on one line.
std::string CliErrorText(const CLI::Error& error);

// Calls `parse`, which calls CLI11, and catches its exceptions.
//   INVALID_ARGUMENT  CLI11 reported an error; the message is `text` of it.
absl::Status CatchCliErrors(absl::FunctionRef<void()> parse,
                            absl::FunctionRef<std::string(const CLI::Error&)> text = CliErrorText);

// Lets CLI11 parse `words`, the arguments without the program's name. Returns the output of --help or --version, to be
// printed before exiting with 0; empty if neither was given.
//   INVALID_ARGUMENT  As CatchCliErrors.
absl::StatusOr<std::string> ParseWords(CLI::App& app, const std::vector<std::string>& words,
                                       absl::FunctionRef<std::string(const CLI::Error&)> text = CliErrorText);

// Lets all options of `app` take their values as TrimValue returns them, and those of the types FILE and DIR expand "~"
// (given_value.h). Values from a configuration file too.
void RepairValues(CLI::App& app);

}  // namespace ddprun

#endif  // DDPRUN_BASE_COMMAND_LINE_H_

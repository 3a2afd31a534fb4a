#ifndef DDPRUN_BASE_COMMAND_LINE_H_
#define DDPRUN_BASE_COMMAND_LINE_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

// CLI11 throws what it has to say; these return it.
namespace ddprun {

// What CLI11 says, on one line.
std::string CliErrorText(const CLI::Error& error);

// Calls `parse`, which calls CLI11.
//   INVALID_ARGUMENT  CLI11 refused something; the message is `text` of it.
absl::Status CatchCliErrors(absl::FunctionRef<void()> parse,
                            absl::FunctionRef<std::string(const CLI::Error&)> text = CliErrorText);

// Lets CLI11 take `words`, those after the program's name. Returns the answer to --help or --version: print it and exit
// with 0. Empty: neither was asked for.
//   INVALID_ARGUMENT  as CatchCliErrors.
absl::StatusOr<std::string> ParseWords(CLI::App& app, const std::vector<std::string>& words,
                                       absl::FunctionRef<std::string(const CLI::Error&)> text = CliErrorText);

}  // namespace ddprun

#endif  // DDPRUN_BASE_COMMAND_LINE_H_

#include "base/command_line.h"

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr size_t kMaxErrorBytes = 1000;

}  // namespace

std::string CliErrorText(const CLI::Error& error) { return OneLine(error.what(), kMaxErrorBytes); }

absl::Status CatchCliErrors(absl::FunctionRef<void()> parse, absl::FunctionRef<std::string(const CLI::Error&)> text) {
  try {
    parse();
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(text(error));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ParseWords(CLI::App& app, const std::vector<std::string>& words,
                                       absl::FunctionRef<std::string(const CLI::Error&)> text) {
  std::string answer;
  const absl::Status status = CatchCliErrors(
      [&] {
        try {
          app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
        } catch (const CLI::CallForHelp&) {
          answer = app.help();
        } catch (const CLI::CallForVersion& version) {
          answer = absl::StrCat(version.what(), "\n");
        }
      },
      text);
  if (!status.ok()) return status;
  return answer;
}

}  // namespace ddprun

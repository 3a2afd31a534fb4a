#include "base/command_line.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr size_t kMaxErrorBytes = 1000;

}  // namespace

std::string CliErrorText(const CLI::Error& error) { return Visible(error.what(), kMaxErrorBytes); }

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
  DDPRUN_RETURN_IF_ERROR(CatchCliErrors(
      [&] {
        try {
          app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
        } catch (const CLI::CallForHelp&) {
          answer = app.help();
        } catch (const CLI::CallForVersion& version) {
          answer = absl::StrCat(version.what(), "\n");
        }
      },
      text));
  return answer;
}

void RepairValues(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    const bool is_path = option->get_type_name() == "FILE" || option->get_type_name() == "DIR";
    const auto repair = [is_path](std::string& value) {
      const char* const home = std::getenv("HOME");
      value = std::string(TrimValue(value));
      const absl::StatusOr<std::string> path =
          is_path ? ExpandHome(value, home == nullptr ? "" : home) : absl::StatusOr<std::string>(value);
      if (path.ok()) value = *path;
      return std::string(path.status().message());
    };
    if (option->get_items_expected_max() > 0) option->transform(CLI::Validator(repair, ""));
  }
}

}  // namespace ddprun

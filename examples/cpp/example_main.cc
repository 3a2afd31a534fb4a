#include "examples/cpp/example_main.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker_runtime/spawn/spawn.h"

namespace examples {

void ParseFlags(CLI::App& app, int argc, char** argv) {
  for (CLI::Option* option : app.get_options()) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help() << std::flush;
    _exit(0);
  } catch (const CLI::Error& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    UsageError(line);
  }
}

CLI::Validator AtLeast(int least) {
  const auto check = [least](const std::string& value) -> std::string {
    double number = 0;
    if (absl::SimpleAtod(value, &number) && number >= least) return "";
    return absl::StrCat("it is ", value, ", but must be ", least, " or more");
  };
  return CLI::Validator(check, absl::StrCat(">=", least));
}

CLI::Validator Positive() {
  const auto check = [](const std::string& value) -> std::string {
    double number = 0;
    if (absl::SimpleAtod(value, &number) && number > 0) return "";
    return absl::StrCat("it is ", value, ", but must be greater than 0");
  };
  return CLI::Validator(check, ">0");
}

void UsageError(absl::string_view message) {
  std::cerr << program_invocation_short_name << ": " << message << " (--help shows all flags)" << std::endl;
  _exit(2);
}

void AddCommonFlags(CLI::App& app, CommonFlags* flags) {
  app.add_option("--backend", flags->backend, "gloo (CPU), nccl (GPU), or auto: nccl where there is a GPU")
      ->capture_default_str();
  app.add_option("--spawn", flags->spawn, "number of workers to start; 0: started by a launcher")
      ->check(AtLeast(0))
      ->capture_default_str();
}

std::string DeviceFor(const CommonFlags& flags) {
  const std::map<std::string, std::string> devices = {{"auto", "auto"}, {"gloo", "cpu"}, {"nccl", "cuda"}};
  const auto device = devices.find(flags.backend);
  if (device == devices.end()) {
    UsageError(absl::StrCat("--backend is ", flags.backend, ", but must be auto, gloo or nccl"));
  }
  return device->second;
}

int Run(int spawn, const ddprun::WorkerOptions& options, absl::FunctionRef<absl::Status(ddprun::Worker&)> body) {
  if (spawn == 0) ddprun::RunWorker(options, body);
  const absl::Status status = ddprun::Spawn(spawn, {.worker = options}, body);
  if (status.ok()) return 0;
  std::cerr << program_invocation_short_name << ": " << std::string(status.message()) << std::endl;
  return 1;
}

int Main(CLI::App& app, int argc, char** argv, absl::FunctionRef<absl::Status(ddprun::Worker&)> body,
         ddprun::WorkerOptions options, CommonFlags common) {
  AddCommonFlags(app, &common);
  ParseFlags(app, argc, argv);
  options.device = DeviceFor(common);
  return Run(common.spawn, options, body);
}

void Say(absl::string_view text) {
  const std::string line = absl::StrCat(text, "\n");
  for (size_t done = 0; done < line.size();) {
    const ssize_t count = write(STDOUT_FILENO, line.data() + done, line.size() - done);
    if (count < 0 && errno != EINTR) return;  // the reader is gone
    done += std::max<ssize_t>(count, 0);
  }
}

}  // namespace examples

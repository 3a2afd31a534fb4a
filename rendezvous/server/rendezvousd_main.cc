// rendezvousd: the rendezvous server as a program of its own, for any number of jobs.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/counted.h"
#include "rendezvous/base/crash_report.h"
#include "rendezvous/base/file_limit.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/secret.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/base/version.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/server.h"
#include "rendezvous/state/sqlite_store.h"
#include "rendezvous/wire/credential_files.h"
#include "rendezvous/wire/host_port.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
// How long to wait at exit for buffered log lines to be written.
constexpr absl::Duration kLastWords = absl::Seconds(1);

struct Options {
  std::vector<std::string> listen = {"127.0.0.1:29400"};
  std::string log_level = "INFO";
  std::string state_dir;
  Credentials credentials;
};

// -1: go on; else the exit status to end with.
int ParseOptions(int argc, char** argv, Options* options) {
  CLI::App app("Rendezvous server for ddprun: assigns rounds, ranks and the master address, for any number of jobs.",
               "rendezvousd");
  app.add_option("--listen", options->listen,
                 "ADDRESS:PORT to listen on (repeatable); IPv6 in brackets, port 0 picks a free port")
      ->type_name("ADDRESS:PORT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check([](const std::string& text) { return std::string(ParseHostPort(text).status().message()); })
      ->capture_default_str();
  app.add_option("--token-file", options->credentials.token_file,
                 "File with the accepted tokens, one per line (also DDPRUN_TOKEN_FILE, or the token itself in "
                 "DDPRUN_TOKEN)")
      ->type_name("FILE");
  app.add_option("--tls-cert", options->credentials.tls_cert, "PEM certificate chain of this server")
      ->type_name("FILE");
  app.add_option("--tls-key", options->credentials.tls_key, "PEM private key of --tls-cert")->type_name("FILE");
  app.add_option("--tls-ca", options->credentials.tls_ca,
                 "PEM CA certificate; launchers must present a certificate signed by it")
      ->type_name("FILE");
  app.add_option("--tls-allowed-names", options->credentials.tls_allowed_names,
                 "Accept only launchers whose certificate has one of these names")
      ->type_name("NAME,...")
      ->allow_extra_args(false)
      ->delimiter(',');
  app.add_option("--log-level", options->log_level, "Minimum level to log to stderr")
      ->check(CLI::IsMember({"DEBUG", "INFO", "WARNING", "ERROR"}, CLI::ignore_case))
      ->capture_default_str();
  app.add_option("--state-dir", options->state_dir,
                 "Directory for job state; a restarted server resumes rounds, restart counts and verdicts from it")
      ->type_name("DIR");
  app.set_version_flag("--version", absl::StrCat("rendezvousd ", kVersion));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    Log(LogLevel::kError, absl::StrCat(error.what(), " (see --help)"));
    return kExitUsage;
  }
  const std::optional<std::string> token = TakeVariable(kTokenVariable);
  const std::optional<std::string> token_file = TakeVariable(kTokenFileVariable);
  if (options->credentials.token_file.empty()) {
    options->credentials.token = token.value_or("");
    options->credentials.token_file = token ? "" : token_file.value_or("");
  }
  InitLog("rendezvousd", ParseLogLevel(options->log_level, LogLevel::kInfo));
  return -1;
}

int Run(const Options& options) {
  // Blocked before any thread exists, so that only sigwait sees them.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  // A log reader that exits must not end the jobs, and one that does not read must not block them.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log file larger than `ulimit -f`
  StartLogThread();
  RaiseFileLimit();

  std::vector<std::string> warnings;
  const absl::Status credentials = CheckCredentials(options.credentials, CredentialSide::kServer, &warnings);
  if (!credentials.ok()) {
    Log(LogLevel::kError, credentials.message());
    return kExitUsage;
  }
  for (const std::string& warning : warnings) Log(LogLevel::kWarning, warning);

  std::unique_ptr<SqliteStore> store;
  SavedState saved;
  if (!options.state_dir.empty()) {
    absl::StatusOr<std::unique_ptr<SqliteStore>> opened = SqliteStore::Open(options.state_dir);
    if (!opened.ok()) {
      Log(LogLevel::kError, opened.status().message());
      return kExitFailed;
    }
    store = *std::move(opened);
    saved = store->TakeSaved();
    Log(LogLevel::kInfo, absl::StrCat("restored ", Counted(saved.jobs.size(), "job"), " from ", options.state_dir));
  }
  Driver driver(Driver::Host::kDaemon, std::move(saved), store.get());
  const absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start(&driver, options.listen, {.credentials = options.credentials});
  if (!server.ok()) {
    Log(LogLevel::kError, server.status().message());
    return kExitFailed;
  }
  for (const std::string& address : (*server)->addresses()) {
    printf("rendezvousd: listening on %s\n", address.c_str());
  }
  fflush(stdout);

  int signal_number = 0;
  sigwait(&stop_signals, &signal_number);
  Log(LogLevel::kInfo, absl::StrCat("received ", SignalName(signal_number), "; shutting down"));
  // Before the streams are closed: their end must not be recorded as nodes leaving.
  if (store != nullptr) store->Stop();
  (*server)->Shutdown();
  return 0;
}

}  // namespace
}  // namespace ddprun::rendezvous

int main(int argc, char** argv) {
  ddprun::rendezvous::Options options;
  ddprun::InitLog("rendezvousd", ddprun::LogLevel::kInfo);
  ddprun::InstallCrashReport("rendezvousd");
  int exit_status = ddprun::rendezvous::ParseOptions(argc, argv, &options);
  if (exit_status < 0) exit_status = ddprun::rendezvous::Run(options);
  ddprun::FlushLog(ddprun::SteadyNow() + ddprun::rendezvous::kLastWords);
  return exit_status;
}

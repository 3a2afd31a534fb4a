// rendezvousd: the rendezvous server as a program of its own, for any number of jobs.

#include <signal.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/base/counted.h"
#include "rendezvous/base/crash_report.h"
#include "rendezvous/base/file_limit.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/service_manager.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/steady_time.h"
#include "rendezvous/http/http_service.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/event_log.h"
#include "rendezvous/server/rendezvousd_options.h"
#include "rendezvous/server/server.h"
#include "rendezvous/state/sqlite_store.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
// How long to wait at exit for buffered log lines to be written.
constexpr absl::Duration kLastWords = absl::Seconds(1);

int Fail(const absl::Status& status, int exit_status) {
  Log(LogLevel::kError, status.message());
  return exit_status;
}

int CheckConfig(const RendezvousdOptions& options) {
  std::vector<std::string> warnings;
  if (absl::Status status = CheckRendezvousdOptions(options, &warnings); !status.ok()) return Fail(status, kExitUsage);
  for (const std::string& warning : warnings) Log(LogLevel::kWarning, warning);
  puts("rendezvousd: configuration is valid");
  return 0;
}

// Reloads at each SIGHUP, and returns at another signal. Credential files need no reload: they are read again when they
// change.
void AwaitEnd(const sigset_t& signals) {
  int signal_number = 0;
  for (sigwait(&signals, &signal_number); signal_number == SIGHUP; sigwait(&signals, &signal_number)) {
    NotifyServiceManager(ReloadingState());
    Log(LogLevel::kInfo, "received SIGHUP; reloaded");
    NotifyServiceManager("READY=1");
  }
  Log(LogLevel::kInfo, absl::StrCat("received ", SignalName(signal_number), "; shutting down"));
}

absl::StatusOr<std::unique_ptr<http::HttpService>> StartHttp(const RendezvousdOptions& options, const Driver& driver) {
  http::Sources sources;
  sources.list_jobs = [&driver](absl::string_view after, size_t limit) { return driver.ListJobs(after, limit); };
  sources.get_job = [&driver](absl::string_view job_id) { return driver.GetJob(job_id); };
  sources.server = [&driver] {
    return http::ServerView{.trouble = driver.StoreTrouble(), .launchers = static_cast<size_t>(driver.Launchers())};
  };
  sources.counts = [] { return http::EventCounts(); };
  return http::HttpService::Start(
      {.address = options.http, .open = options.http_open, .credentials = options.credentials}, std::move(sources));
}

int Run(const RendezvousdOptions& options) {
  // Blocked before any thread exists, so that only sigwait sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A log reader that exits must not end the jobs, and one that does not read must not block them.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log file larger than `ulimit -f`
  StartLogThread();
  RaiseFileLimit();

  std::vector<std::string> warnings;
  if (absl::Status status = CheckRendezvousdOptions(options, &warnings); !status.ok()) return Fail(status, kExitUsage);
  for (const std::string& warning : warnings) Log(LogLevel::kWarning, warning);

  std::unique_ptr<SqliteStore> store;
  SavedState saved;
  if (!options.state_dir.empty()) {
    absl::StatusOr<std::unique_ptr<SqliteStore>> opened = SqliteStore::Open(options.state_dir);
    if (!opened.ok()) return Fail(opened.status(), kExitFailed);
    store = *std::move(opened);
    saved = store->TakeSaved();
    Log(LogLevel::kInfo, absl::StrCat("restored ", Counted(saved.jobs.size(), "job"), " from ", options.state_dir));
  }
  EventLog events;
  Driver driver(Driver::Host::kDaemon, std::move(saved), store.get(), &events);
  const absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start(&driver, options.listen, {.credentials = options.credentials});
  if (!server.ok()) return Fail(server.status(), kExitFailed);
  std::unique_ptr<http::HttpService> http;
  if (!options.http.empty()) {
    absl::StatusOr<std::unique_ptr<http::HttpService>> started = StartHttp(options, driver);
    if (!started.ok()) return Fail(started.status(), kExitFailed);
    http = *std::move(started);
  }
  for (const std::string& address : (*server)->addresses()) {
    printf("rendezvousd: listening on %s\n", address.c_str());
  }
  if (http != nullptr) printf("rendezvousd: HTTP on port %d\n", http->port());
  fflush(stdout);
  NotifyServiceManager("READY=1");

  AwaitEnd(signals);
  NotifyServiceManager("STOPPING=1");
  // Before the streams are closed: their end must not be recorded as nodes leaving.
  if (store != nullptr) store->Stop();
  (*server)->Shutdown();
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  absl::StatusOr<RendezvousdCommandLine> line = ParseRendezvousdOptions(arguments);
  if (!line.ok()) return Fail(line.status(), kExitUsage);
  if (!line->answer.empty()) {
    fputs(line->answer.c_str(), stdout);
    return 0;
  }
  RendezvousdOptions options = std::move(line->options);
  TakeTokenFromEnvironment(&options.credentials);
  InitLog("rendezvousd", ParseLogLevel(options.log_level, LogLevel::kInfo));
  return options.check_config ? CheckConfig(options) : Run(options);
}

}  // namespace
}  // namespace ddprun::rendezvous

int main(int argc, char** argv) {
  ddprun::InitLog("rendezvousd", ddprun::LogLevel::kInfo);
  ddprun::InstallCrashReport("rendezvousd");
  const int exit_status = ddprun::rendezvous::Main({argv + 1, argv + argc});
  ddprun::FlushLog(ddprun::SteadyNow() + ddprun::rendezvous::kLastWords);
  return exit_status;
}

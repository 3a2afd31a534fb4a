// rendezvousd: the standalone rendezvous server, for any number of jobs.

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "base/crash_handler.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "base/socket_address.h"
#include "base/steady_time.h"
#include "base/text.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/daemon/rendezvousd_options.h"
#include "rendezvous/ha/ha_server.h"
#include "rendezvous/http/http_api.h"
#include "rendezvous/server/driver.h"
#include "rendezvous/server/event_log.h"
#include "rendezvous/server/server.h"
#include "rendezvous/state/sqlite_store.h"
#include "rendezvous/state/state_store.h"
#include "rendezvous/wire/credential_files.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::rendezvous {
namespace {

// Reports state such as "READY=1" (sd_notify(3)) to the service manager that started this process (systemd,
// Type=notify), in one datagram to the socket $NOTIFY_SOCKET. Does nothing if the variable is not set; errors are
// ignored.
void NotifyServiceManager(absl::string_view state) {
  const char* const name = getenv("NOTIFY_SOCKET");
  const std::optional<UnixAddress> address = UnixAddress::Parse(name == nullptr ? "" : name);
  if (!address.has_value()) return;
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  sendto(fd, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT, address->get(), address->size());
  close(fd);
}

using worker_contract::kExitFailed;
using worker_contract::kExitUsage;
// Maximum time to wait at exit for buffered log lines to be written.
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

HaOptions MakeHaOptions(const RendezvousdOptions& options) {
  const EtcdFlags& flags = options.etcd;
  const std::pair<std::string, std::string> user = absl::StrSplit(flags.user, absl::MaxSplits(':', 1));
  return HaOptions{.etcd = {.endpoints = flags.endpoints,
                            .ca_file = flags.cacert,
                            .cert_file = flags.cert,
                            .key_file = flags.key,
                            .user = user.first,
                            .password = user.second},
                   .prefix = flags.prefix,
                   .advertise = flags.advertise,
                   .lease_ttl = absl::Seconds(flags.lease_ttl_s),
                   .listen = options.listen,
                   .credentials = options.credentials};
}

// Exits without an orderly shutdown: another server may own the lease at any moment, and only the leader may send the
// messages of a shutdown to launchers.
void ExitWithoutShutdown(const std::string& reason) {
  Log(LogLevel::kError,
      absl::StrCat("no longer the leader (", reason, "); exiting, so that it can be started as a follower"));
  FlushLog(SteadyNow() + kLastWords);
  _exit(kExitFailed);
}

// Waits for a signal on the signalfd, or until the eventfd is set (-1: there is none). Returns the signal, or 0 for the
// event.
int AwaitSignal(int signals, int event = -1) {
  pollfd fds[] = {{signals, POLLIN, 0}, {event, POLLIN, 0}};
  while (true) {
    signalfd_siginfo info;
    uint64_t count = 0;
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents != 0 && read(signals, &info, sizeof info) == sizeof info)
      return static_cast<int>(info.ssi_signo);
    if (fds[1].revents != 0 && read(event, &count, sizeof count) == sizeof count) return 0;
  }
}

void NoteEnd(int signal_number) {
  Log(LogLevel::kInfo, absl::StrCat("received ", SignalName(signal_number), "; shutting down"));
  NotifyServiceManager("STOPPING=1");
}

// The server's own record is not a job.
std::string CountedJobs(const SavedState& saved) {
  const auto jobs = std::count_if(saved.jobs.begin(), saved.jobs.end(),
                                  [](const JobRecord& record) { return record.job_id() != kServerRecordId; });
  return Counted(jobs, "job");
}

// Data for the HTTP server: the jobs of the driver, once there is one. A follower has none and names the leader. All
// arguments outlive the HTTP server.
class HttpView {
 public:
  // `ha`: this server as one of several. Call before the HTTP server starts.
  void Follow(const HaServer* ha) { ha_ = ha; }
  void Show(Driver* driver) { driver_ = driver; }

  http::Sources Sources() {
    http::Sources sources;
    sources.list_jobs = [this](absl::string_view after, size_t limit) {
      const Driver* const driver = driver_;
      return driver == nullptr ? std::vector<v1::Job>() : driver->ListJobs(after, limit);
    };
    sources.get_job = [this](absl::string_view job_id) {
      const Driver* const driver = driver_;
      return driver == nullptr ? std::nullopt : driver->GetJob(job_id);
    };
    sources.server = [this] {
      const Driver* const driver = driver_;
      if (driver == nullptr) return http::ServerView{.leads = false, .leader = ha_ == nullptr ? "" : ha_->leader()};
      return http::ServerView{.trouble = driver->StoreTrouble(), .launchers = static_cast<size_t>(driver->Launchers())};
    };
    sources.inspect = [this](v1::InspectRequest question, const Caller& caller, v1::InspectResponse* response,
                             std::function<void(absl::Status)> answer) {
      Driver* const driver = driver_;
      if (driver == nullptr) return answer(absl::UnavailableError("this server does not lead"));
      driver->Inspect(std::move(question), caller, response, std::move(answer));
    };
    return sources;
  }

 private:
  const HaServer* ha_ = nullptr;
  std::atomic<Driver*> driver_ = nullptr;
};

// Starts the HTTP server if one is configured. The view and the events outlive the result.
absl::StatusOr<std::unique_ptr<http::HttpService>> StartHttp(const RendezvousdOptions& options, HttpView* view,
                                                             EventLog* events) {
  if (options.http.empty()) return std::unique_ptr<http::HttpService>();
  return http::HttpService::Start(
      {.address = options.http, .open = options.http_open, .credentials = options.credentials}, view->Sources(),
      events);
}

// Where this server listens, its records and their store, and its epoch among several servers.
struct Place {
  std::vector<std::string> listen;
  SavedState saved;
  StateStore* store = nullptr;
  std::function<void()> stop_store = [] {};
  int64_t epoch = 0;
  std::unique_ptr<EventLog> events = std::make_unique<EventLog>();
  std::unique_ptr<HttpView> view = std::make_unique<HttpView>();
  std::unique_ptr<http::HttpService> http;  // declared after the objects it shows
};

void AnnounceListening(const std::vector<std::string>& addresses, const http::HttpService* http) {
  for (const std::string& address : addresses) printf("rendezvousd: listening on %s\n", address.c_str());
  if (http != nullptr) printf("rendezvousd: HTTP on port %d\n", http->port());
  fflush(stdout);
  NotifyServiceManager("READY=1");
}

// Serves launchers and HTTP until a signal arrives. A former follower already serves HTTP.
int Serve(const RendezvousdOptions& options, Place place, int signals) {
  Driver driver(Driver::Host::kDaemon, std::move(place.saved), place.store, place.events.get());
  const absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start(&driver, place.listen, {.credentials = options.credentials, .epoch = place.epoch});
  if (!server.ok()) return Fail(server.status(), kExitFailed);
  place.view->Show(&driver);
  if (place.epoch == 0) {
    absl::StatusOr<std::unique_ptr<http::HttpService>> http = StartHttp(options, place.view.get(), place.events.get());
    if (!http.ok()) return Fail(http.status(), kExitFailed);
    place.http = *std::move(http);
    AnnounceListening((*server)->addresses(), place.http.get());
  }
  NoteEnd(AwaitSignal(signals));
  // Before the streams are closed: their ends must not be recorded as nodes leaving.
  place.stop_store();
  (*server)->Shutdown();
  place.http = nullptr;  // before the driver is destroyed
  return 0;
}

int RunAlone(const RendezvousdOptions& options, int signals) {
  Place place{.listen = options.listen};
  std::unique_ptr<SqliteStore> store;
  if (!options.state_dir.empty()) {
    absl::StatusOr<std::unique_ptr<SqliteStore>> opened = SqliteStore::Open(options.state_dir);
    if (!opened.ok()) return Fail(opened.status(), kExitFailed);
    store = *std::move(opened);
    place.saved = store->TakeSaved();
    place.store = store.get();
    place.stop_store = [&store] { store->Stop(); };
    Log(LogLevel::kInfo, absl::StrCat("restored ", CountedJobs(place.saved), " from ", options.state_dir));
  }
  return Serve(options, std::move(place), signals);
}

// Follows until it leads, then serves until a signal arrives or it loses the leadership.
int RunAsOneOfSeveral(const RendezvousdOptions& options, int signals) {
  absl::Status led;  // set before lead_event
  const int lead_event = eventfd(0, EFD_CLOEXEC);
  const auto on_lead = [&](absl::Status status) {
    led = std::move(status);
    const uint64_t one = 1;
    (void)!write(lead_event, &one, sizeof one);
  };
  const absl::StatusOr<std::unique_ptr<HaServer>> ha =
      HaServer::Start(MakeHaOptions(options), {.on_lead = on_lead, .on_step_down = ExitWithoutShutdown});
  if (!ha.ok()) return Fail(ha.status(), absl::IsInvalidArgument(ha.status()) ? kExitUsage : kExitFailed);
  auto events = std::make_unique<EventLog>();
  auto view = std::make_unique<HttpView>();
  view->Follow(ha->get());
  absl::StatusOr<std::unique_ptr<http::HttpService>> http = StartHttp(options, view.get(), events.get());
  if (!http.ok()) return Fail(http.status(), kExitFailed);
  AnnounceListening((*ha)->addresses(), http->get());
  if (const int signal_number = AwaitSignal(signals, lead_event); signal_number != 0) {
    NoteEnd(signal_number);
    return 0;
  }
  if (!led.ok()) return Fail(led, kExitFailed);
  HaServer* const leader = ha->get();
  Place place{.listen = leader->addresses(),
              .saved = leader->store()->TakeSaved(),
              .store = leader->store(),
              .stop_store = [leader] { leader->store()->Stop(); },
              .epoch = leader->epoch(),
              .events = std::move(events),
              .view = std::move(view),
              .http = *std::move(http)};
  Log(LogLevel::kInfo,
      absl::StrCat("leads since revision ", place.epoch, "; restored ", CountedJobs(place.saved), " from etcd"));
  return Serve(options, std::move(place), signals);
}

int Run(const RendezvousdOptions& options) {
  // Blocked before any thread exists, so that they arrive only at the signalfd.
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigaddset(&blocked, SIGINT);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  const int signals = signalfd(-1, &blocked, SFD_CLOEXEC);
  // A log reader that exits must not end the jobs, and one that does not read must not block them.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log file larger than `ulimit -f`
  // The server survives the terminal that started it. Credential files are read again when they change.
  signal(SIGHUP, SIG_IGN);
  StartLogThread();
  RaiseFileLimit();

  std::vector<std::string> warnings;
  if (absl::Status status = CheckRendezvousdOptions(options, &warnings); !status.ok()) return Fail(status, kExitUsage);
  for (const std::string& warning : warnings) Log(LogLevel::kWarning, warning);

  return options.etcd.endpoints.empty() ? RunAlone(options, signals) : RunAsOneOfSeveral(options, signals);
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
  TakeEtcdUserFromEnvironment(&options.etcd);
  InitLog("rendezvousd", ParseLogLevel(options.log_level, LogLevel::kInfo));
  return options.check_config ? CheckConfig(options) : Run(options);
}

}  // namespace
}  // namespace ddprun::rendezvous

int main(int argc, char** argv) {
  ddprun::ResetSignals();
  ddprun::InitLog("rendezvousd", ddprun::LogLevel::kInfo);
  ddprun::InstallCrashReport("rendezvousd");
  // Distributions build Abseil with deadlock detection, which slows down every lock of gRPC's mutexes.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const int exit_status = ddprun::rendezvous::Main({argv + 1, argv + argc});
  ddprun::FlushLog(ddprun::SteadyNow() + ddprun::rendezvous::kLastWords);
  return exit_status;
}

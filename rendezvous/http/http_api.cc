#include "rendezvous/http/http_api.h"

#include <dirent.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/endpoint.h"
#include "base/secret.h"
#include "base/socket_address.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "base/text.h"
#include "base/version.h"
#include "rendezvous/core/inspection.h"
#include "rendezvous/http/metrics.h"
#include "rendezvous/http/page_files.inc"
#include "rendezvous/wire/message_json.h"

namespace ddprun::http {
namespace {

using nlohmann::json;
using rendezvous::EventLog;

// A file of the web page, embedded in the program. Valid as long as the program runs.
struct Asset {
  absl::string_view type;
  absl::string_view text;
};

// Returns the file at a path of the server ("/", "/page.js"); nullopt if there is none.
std::optional<Asset> FindAsset(absl::string_view path) {
  const auto text = [](const unsigned char* bytes, size_t size) {
    return absl::string_view(reinterpret_cast<const char*>(bytes), size);
  };
  if (path == "/") return Asset{"text/html; charset=utf-8", text(kIndexHtml, sizeof(kIndexHtml))};
  if (path == "/page.css") return Asset{"text/css; charset=utf-8", text(kPageCss, sizeof(kPageCss))};
  if (path == "/page.js") return Asset{"text/javascript; charset=utf-8", text(kPageJs, sizeof(kPageJs))};
  return std::nullopt;
}

// Number of fields in /proc/self/stat between the name in brackets, which may contain anything, and the start time; the
// first one is the state (field 3).
constexpr int kFieldsBeforeStartTime = 19;

double StartTime() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(line.substr(end + 1));
  std::string field;
  for (int i = 0; i < kFieldsBeforeStartTime; ++i) fields >> field;
  double ticks = 0;
  fields >> ticks;
  timespec real;
  timespec since_boot;
  clock_gettime(CLOCK_REALTIME, &real);
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  return static_cast<double>(real.tv_sec - since_boot.tv_sec) + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double CountFiles() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int count = -3;  // ".", ".." and the folder itself
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Reads the current numbers of this process.
ProcessNumbers ReadProcessNumbers() {
  ProcessNumbers numbers;
  timespec cpu;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  numbers.cpu_seconds = static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) / 1e9;
  double pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  numbers.resident_bytes = pages * static_cast<double>(sysconf(_SC_PAGESIZE));
  numbers.open_files = CountFiles();
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) numbers.max_files = static_cast<double>(limit.rlim_cur);
  static const double start = StartTime();  // the clocks may be set; the start does not change
  numbers.start_time_seconds = start;
  return numbers;
}

constexpr size_t kPartBytes = 64 * 1024;
constexpr size_t kEventsAtOnce = 256;
constexpr char kJobPath[] = "/api/v1/jobs/";
// Allows only content from this server; no inline script or style.
constexpr char kContentPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'";

Response Json(const json& value, int status = 200) {
  return Response{.status = status, .type = "application/json", .body = rendezvous::JsonText(value)};
}

Response Error(int status, absl::string_view text) { return Json({{"error", std::string(text)}}, status); }

Response NotFound() { return Error(404, "no such path"); }

int HttpStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound: return 404;
    case absl::StatusCode::kPermissionDenied: return 403;
    case absl::StatusCode::kInvalidArgument: return 400;
    case absl::StatusCode::kFailedPrecondition: return 409;
    default: return 503;
  }
}

// The last lines of a part of a stream, as clean text.
std::string LastLines(absl::string_view text) {
  constexpr size_t kMostLines = 100;
  std::vector<std::string> lines;
  absl::ConsumeSuffix(&text, "\n");
  while (lines.size() < kMostLines && !text.empty()) {
    const size_t begin = text.rfind('\n') + 1;  // 0 without one
    lines.push_back(rendezvous::PlainLine(text.substr(begin)));
    text = text.substr(0, begin == 0 ? 0 : begin - 1);
  }
  std::reverse(lines.begin(), lines.end());
  return absl::StrJoin(lines, "\n");
}

// Output becomes text, and only its last lines.
json InspectionToJson(v1::InspectResponse response) {
  json outputs = json::array();
  std::string text;  // parts of one stream
  for (int i = 0; i < response.outputs_size(); ++i) {
    const v1::RankOutput& output = response.outputs(i);
    text += output.text();
    if (i + 1 < response.outputs_size() && response.outputs(i + 1).rank() == output.rank() &&
        response.outputs(i + 1).is_stderr() == output.is_stderr()) {
      continue;
    }
    outputs.push_back({{"rank", output.rank()},
                       {"host", output.host()},
                       {"stream", output.is_stderr() ? "stderr" : "stdout"},
                       {"seen", output.end() != 0},
                       {"text", LastLines(std::exchange(text, ""))}});
  }
  response.clear_outputs();
  json object = rendezvous::ToJson(response);
  object["outputs"] = std::move(outputs);
  return object;
}

// A browser shares cookies of one name among all ports of a host, and "localhost" can be several servers (`ssh -L`), so
// the name includes the port that the browser uses.
std::string CookieName(const Request& request) {
  const std::string host(request.Header("host"));
  const std::string port = host.substr(host.rfind(':') + 1);
  const bool is_port = !port.empty() && port.size() < host.size() && port.find_first_not_of("0123456789") == port.npos;
  return absl::StrCat("ddprun_session", is_port ? "_" : "", is_port ? port : "");
}

}  // namespace

HttpApi::HttpApi(Sources sources, const rendezvous::Credentials& credentials, bool any_host)
    : sources_(std::move(sources)),
      check_host_(!any_host && !credentials.has_token()),
      tls_(!credentials.tls_cert.empty()),
      server_id_(RandomId().substr(0, 8)),
      login_(credentials) {}

Response HttpApi::Handle(const Request& request) {
  Target target;
  Response response = ParseTarget(request.target, &target) ? Route(request, target) : Error(400, "malformed path");
  auto& headers = response.headers;
  headers.emplace_back("Cache-Control", "no-store");
  headers.emplace_back("Content-Security-Policy", kContentPolicy);
  headers.emplace_back("Referrer-Policy", "no-referrer");
  headers.emplace_back("X-Content-Type-Options", "nosniff");
  return response;
}

Response HttpApi::Route(const Request& request, const Target& target) {
  const std::string& path = target.path;
  if (path == "/healthz" && request.method == "GET") return Response{.body = "ok\n"};
  if (path == "/readyz" && request.method == "GET") return Readiness();
  if (check_host_ && !NamesLoopback(request.Header("host"))) {
    return Error(421, "without a token this server only answers requests for localhost (see --http-open)");
  }
  if (path == "/login" && request.method == "POST") return LogIn(request);
  if (request.method != "GET") {
    Response response = Error(405, "only GET, HEAD and POST /login are allowed");
    response.headers.emplace_back("Allow", path == "/login" ? "POST" : "GET, HEAD");
    return response;
  }
  if (const std::optional<Asset> asset = FindAsset(path)) {
    return Response{.type = std::string(asset->type), .body = std::string(asset->text)};
  }
  if (!login_.Allows(request, SteadyNow())) {
    // Requests without a token are normal before a login and are not logged.
    if (!request.Header("authorization").empty()) LogRefusal(request);
    Response response = Error(401, "a token is required: Authorization: Bearer TOKEN, or log in");
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
  }
  if (path == "/metrics") return Metrics();
  if (path == "/api/v1/server") return Server();
  if (const ServerView server = sources_.server(); !server.leads && absl::StartsWith(path, "/api/")) {
    return Json({{"error", server.WhyNotReady()}, {"leader", server.leader}}, 503);
  }
  if (path == "/api/v1/jobs") return Jobs(target);
  if (path == "/api/v1/events") return Events(request, target);
  if (path == "/api/v1/inspect") return Inspect(request, target);
  if (absl::StartsWith(path, kJobPath)) return Job(path.substr(sizeof(kJobPath) - 1));
  return NotFound();
}

Response HttpApi::Readiness() const {
  const std::string why = sources_.server().WhyNotReady();
  return why.empty() ? Response{.body = "ready\n"} : Response{.status = 503, .body = absl::StrCat(why, "\n")};
}

Response HttpApi::Server() const {
  const ServerView server = sources_.server();
  return Json({{"version", kVersion},
               {"leads", server.leads},
               {"leader", server.leader},
               {"not_ready", server.WhyNotReady()},
               {"launchers", server.launchers},
               {"age", absl::ToDoubleSeconds(server.age)}});
}

Response HttpApi::Metrics() const {
  std::vector<v1::Job> jobs;
  // In pages, so that each call blocks the driver only briefly.
  while (true) {
    std::vector<v1::Job> page = sources_.list_jobs(jobs.empty() ? "" : jobs.back().job_id(), kMaxJobsPerPage);
    const bool last = page.size() < kMaxJobsPerPage;
    std::move(page.begin(), page.end(), std::back_inserter(jobs));
    if (last) break;
  }
  return Response{.type = kMetricsType,
                  .body = MetricsText(sources_.server(), sources_.counts(), ReadProcessNumbers(), jobs)};
}

Response HttpApi::Jobs(const Target& target) const {
  size_t limit = kMaxJobsPerPage;
  const std::string wanted = target.Query("limit");
  if (!wanted.empty() && (!absl::SimpleAtoi(wanted, &limit) || limit == 0 || limit > kMaxJobsPerPage)) {
    return Error(400, absl::StrCat("limit must be a number from 1 to ", kMaxJobsPerPage));
  }
  std::vector<v1::Job> jobs = sources_.list_jobs(target.Query("after"), limit + 1);
  const bool more = jobs.size() > limit;
  if (more) jobs.resize(limit);
  json answer = {{"jobs", json::array()}};
  for (const v1::Job& job : jobs) answer["jobs"].push_back(rendezvous::ToJson(job));
  if (more) answer["next"] = jobs.back().job_id();
  return Json(answer);
}

Response HttpApi::Job(const std::string& job_id) const {
  const std::optional<v1::Job> job = sources_.get_job(job_id);
  if (!job.has_value()) return Error(404, absl::StrCat("job ", job_id, " not found"));
  return Json(rendezvous::ToJson(*job));
}

Response HttpApi::Events(const Request& request, const Target& target) const {
  size_t backlog = 0;
  const std::string wanted = target.Query("backlog");
  if (!wanted.empty() && (!absl::SimpleAtoi(wanted, &backlog) || backlog > EventStream::kMaxBacklog)) {
    return Error(400, absl::StrCat("backlog must be a number from 0 to ", EventStream::kMaxBacklog));
  }
  auto stream = std::make_shared<EventStream>(
      sources_.events, server_id_,
      EventStream::Options{
          .job_id = target.Query("job"), .last_id = std::string(request.Header("last-event-id")), .backlog = backlog});
  return Response{.type = "text/event-stream", .body = "retry: 1000\n\n", .more = [stream] { return stream->Next(); }};
}

Response HttpApi::Inspect(const Request& request, const Target& target) {
  if (sources_.inspect == nullptr) return NotFound();
  rendezvous::Caller caller;
  if (login_.required()) {
    std::optional<rendezvous::Caller> holder = login_.CallerOf(request, SteadyNow());
    if (!holder || holder->role == rendezvous::Role::kRead) return Error(403, "the token's role does not allow it");
    caller = *std::move(holder);
  } else {
    // ControlService::CheckUser does the same for gRPC.
    const auto peer = NumericAddress(request.peer, request.peer_port),
               own = NumericAddress(request.own, request.own_port);
    const absl::StatusOr<uid_t> user = peer.ok() && own.ok() ? socket_owner_.UserOf(*peer, *own) : peer.status();
    if (!user.ok() || !IsRootOrOwnUser(*user)) {
      return Error(403,
                   "this server does not check who calls it, so it shows stacks, output and usage only to root and its "
                   "own user on its own host; give it a token (--token-file)");
    }
  }
  v1::InspectRequest question;
  question.set_job_id(target.Query("job"));
  const std::string what = target.Query("what");
  v1::Inspect::What kind;
  if (!v1::Inspect::What_Parse(absl::StrCat("WHAT_", absl::AsciiStrToUpper(what)), &kind)) {
    return Error(400, "what must be stacks, output or usage");
  }
  question.mutable_inspect()->set_what(kind);
  for (const absl::string_view word : absl::StrSplit(target.Query("rank"), ',', absl::SkipEmpty())) {
    int32_t rank = 0;
    if (!absl::SimpleAtoi(word, &rank)) return Error(400, "rank must be numbers, separated by commas");
    question.mutable_inspect()->add_ranks(rank);
  }
  struct Answer {
    Mutex mutex;
    std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);
    v1::InspectResponse response;
  };
  const auto answer = std::make_shared<Answer>();
  sources_.inspect(std::move(question), caller, &answer->response, [answer, wake = sources_.wake](absl::Status status) {
    {
      MutexLock lock(&answer->mutex);
      answer->status = std::move(status);
    }
    if (wake) wake();
  });
  const auto take = [answer]() -> std::optional<Response> {
    MutexLock lock(&answer->mutex);
    if (!answer->status) return std::nullopt;
    if (!answer->status->ok()) return Error(HttpStatus(*answer->status), answer->status->message());
    return Json(InspectionToJson(std::move(answer->response)));
  };
  if (std::optional<Response> now = take()) return *std::move(now);
  return Response{.type = "application/json",
                  .body = "",
                  .more =
                      [take] {
                        const std::optional<Response> later = take();
                        return later ? later->body : "";
                      },
                  .ends = true};
}

void HttpApi::LogRefusal(const Request& request) {
  refusals_.Warn(absl::StrCat("refused an HTTP request from ", request.peer, ": invalid token"));
}

Response HttpApi::LogIn(const Request& request) {
  absl::string_view body = request.body;
  std::string token;
  if (!absl::ConsumePrefix(&body, "token=") || !DecodePercent(body, true, &token)) {
    return Error(400, "the body must be token=TOKEN");
  }
  const std::optional<std::string> cookie = login_.Begin(request, token, tls_, SteadyNow());
  if (!cookie.has_value() && login_.required()) LogRefusal(request);
  if (!cookie.has_value()) return Error(401, login_.required() ? "invalid token" : "this server has no token");
  return Response{.status = 204, .headers = {{"Set-Cookie", *cookie}}};
}

Login::Login(const rendezvous::Credentials& credentials) : required_(credentials.has_token()), tokens_(credentials) {}

std::optional<rendezvous::Caller> Login::CallerOf(const Request& request, SteadyTime now) {
  const std::string authorization(request.Header("authorization"));
  if (const auto token = rendezvous::BearerToken(authorization)) return tokens_.Accept(*token);
  const std::string cookie = request.Cookie(CookieName(request));
  if (cookie.empty()) return std::nullopt;
  while (!sessions_.empty() && sessions_.front().until <= now) sessions_.pop_front();
  const std::string digest = SecretDigest(cookie);
  for (const Session& session : sessions_) {
    // A client cannot guess the cookie's digest, so an early exit of the comparison reveals nothing.
    if (session.digest == digest) return tokens_.Accept(session.token);
  }
  return std::nullopt;
}

std::optional<std::string> Login::Begin(const Request& request, const std::string& token, bool secure, SteadyTime now) {
  if (!required_ || !tokens_.Accept(token)) return std::nullopt;
  const std::string cookie = absl::BytesToHexString(RandomSecret());
  sessions_.push_back({SecretDigest(cookie), token, now + kLifetime});
  if (sessions_.size() > kMaxSessions) sessions_.pop_front();
  return absl::StrCat(CookieName(request), "=", cookie, "; Path=/; Max-Age=", absl::ToInt64Seconds(kLifetime),
                      "; HttpOnly; SameSite=Strict", secure ? "; Secure" : "");
}

EventStream::EventStream(const EventLog* log, const std::string& server, Options options)
    : log_(log), server_(server), options_(std::move(options)) {
  absl::string_view number = options_.last_id;
  if (absl::ConsumePrefix(&number, absl::StrCat(server_, "-")) && absl::SimpleAtoi(number, &after_) &&
      after_ <= log_->newest()) {
    return;
  }
  if (!options_.last_id.empty()) head_ = "event: reset\ndata: {}\n\n";
  after_ = BacklogStart();
}

bool EventStream::Matches(const rendezvous::Event& event) const {
  return options_.job_id.empty() || event.job_id() == options_.job_id;
}

uint64_t EventStream::BacklogStart() const {
  const EventLog::Events all = log_->Read(0, EventLog::kCapacity);
  size_t wanted = options_.backlog;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    if (wanted == 0) return (*it)->number();
    if (Matches(**it)) --wanted;
  }
  return all.empty() ? log_->newest() : all.front()->number() - 1;
}

std::string EventStream::Next() {
  std::string part = std::exchange(head_, "");
  while (part.size() < kPartBytes) {
    // Read() would start over for a number above the newest.
    if (after_ >= log_->newest()) break;
    const EventLog::Events events = log_->Read(after_, kEventsAtOnce);
    if (events.empty()) break;
    if (events.front()->number() > after_ + 1) {
      absl::StrAppend(&part, "event: gap\ndata: {\"missing\":", events.front()->number() - after_ - 1, "}\n\n");
    }
    for (const auto& event : events) {
      after_ = event->number();
      if (!Matches(*event)) continue;
      absl::StrAppend(&part, "id: ", server_, "-", after_, "\ndata: ", rendezvous::JsonText(rendezvous::ToJson(*event)),
                      "\n\n");
      if (part.size() >= kPartBytes) break;
    }
  }
  return part;
}

absl::StatusOr<std::unique_ptr<HttpService>> HttpService::Start(const ServiceOptions& options, Sources sources,
                                                                rendezvous::EventLog* events) {
  DDPRUN_ASSIGN_OR_RETURN(const Endpoint address, ParseEndpoint(options.address));
  std::unique_ptr<HttpService> service(new HttpService(events));
  HttpService* const raw = service.get();
  sources.events = events;
  sources.counts = [raw] { return raw->CountEvents(); };
  sources.wake = [raw] {
    if (Server* const server = raw->running_) server->Wake();
  };
  sources.server = [raw, inner = std::move(sources.server), began = SteadyNow()] {
    ServerView view = inner();
    const Server* const server = raw->running_;
    const Server::Counts counts = server == nullptr ? Server::Counts() : server->counts();
    view.connections = counts.connections;
    view.event_streams = counts.streams;
    view.refused_connections = counts.refused;
    view.age = SteadyNow() - began;
    return view;
  };
  service->api_ = std::make_unique<HttpApi>(std::move(sources), options.credentials, options.open);
  DDPRUN_ASSIGN_OR_RETURN(service->server_, Server::Start(address, options.credentials,
                                                          [api = service->api_.get()](const Request& request) {
                                                            return api->Handle(request);
                                                          }));
  service->running_ = service->server_.get();
  service->watch_ = events->AddWatch([raw] { raw->OnEvents(); });
  return service;
}

HttpService::~HttpService() {
  watch_.Reset();
  server_.reset();
}

void HttpService::OnEvents() {
  // Count at each event, so that none leaves the log uncounted.
  CountNew();
  Server* const server = running_;
  if (server != nullptr) server->Wake();
}

EventCounts HttpService::CountEvents() {
  CountNew();
  MutexLock lock(&mutex_);
  return counter_.counts();
}

void HttpService::CountNew() {
  constexpr size_t kAtOnce = 1000;
  MutexLock lock(&mutex_);
  while (counted_ < events_->newest()) {
    for (const auto& event : events_->Read(counted_, kAtOnce)) {
      counted_ = event->number();
      // Events of earlier servers were counted there.
      if (counted_ > events_->restored()) counter_.Add(*event);
    }
  }
}

}  // namespace ddprun::http

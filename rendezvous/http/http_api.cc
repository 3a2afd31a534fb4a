#include "rendezvous/http/http_api.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/steady_time.h"
#include "base/text.h"
#include "base/version.h"
#include "rendezvous/http/metrics_text.h"
#include "rendezvous/http/page.h"
#include "rendezvous/http/process_numbers.h"
#include "rendezvous/http/server_sent_events.h"
#include "rendezvous/wire/message_json.h"

namespace ddprun::http {
namespace {

using nlohmann::json;

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

}  // namespace ddprun::http

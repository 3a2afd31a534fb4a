// The pure parts of rendezvous/http, and the answers to requests.
#include "rendezvous/http/http_api.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rendezvous/daemon/rendezvousd_options.h"
#include "rendezvous/http/http_message.h"
#include "rendezvous/http/metrics.h"
#include "tests/testing/process.h"
#include "tests/testing/text_proto.h"

namespace ddprun::http {
namespace {

using nlohmann::json;
using rendezvous::CheckRendezvousdOptions;
using rendezvous::Event;
namespace event_kind = rendezvous::event_kind;

constexpr char kToken[] = "0123456789abcdef+%";

v1::Job SampleJob(const std::string& id, v1::Job::State state = v1::Job::STATE_RUNNING) {
  auto job = TextProto<v1::Job>(R"(
      round: 3 restart_count: 1 node_count: 2 world_size: 8 age { seconds: 90 }
      nodes { host: 'node-a' slots: 4 state: STATE_RUNNING group_rank: -1 last_heard {} })");
  job.set_job_id(id);
  job.set_state(state);
  return job;
}

TEST(HttpMessageTest, ParseTarget_Cases) {
  Target target;
  ASSERT_TRUE(ParseTarget("/api/v1/jobs/a%2fb%20c+d?after=x%26y&limit=1+0&limit=2&flag", &target));
  EXPECT_EQ(target.path, "/api/v1/jobs/a/b c+d");
  EXPECT_EQ(target.Query("after"), "x&y");
  EXPECT_EQ(target.Query("limit"), "2");
  EXPECT_EQ(target.Query("flag"), "");
  for (const char* bad : {"", "jobs", "http://a/b", "*", "/%", "/%1", "/%zz", "/%00", "/a%0d%0ab", "/?x=%0a"}) {
    EXPECT_FALSE(ParseTarget(bad, &target)) << bad;
  }
}

TEST(HttpMessageTest, NamesLoopback_Cases) {
  for (const char* host : {"localhost", "LocalHost:80", "127.0.0.1", "127.1.2.3:8080", "[::1]", "[::1]:80"}) {
    EXPECT_TRUE(NamesLoopback(host)) << host;
  }
  for (const char* host : {"", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]",
                           "[::1", "[127.0.0.1", "a.localhost", "localhost.localdomain", "::1", "::1:80", "127.0.0.1x",
                           "0.0.0.0", "127.0.0.256", "127.0.1"}) {
    EXPECT_FALSE(NamesLoopback(host)) << host;
  }
}

TEST(HttpMessageTest, Cookie_IsFoundAmongOthers) {
  const Request request{.headers = {{"host", "a"}, {"cookie", "a=1; ddprun_session=xyz==; b"}}};
  EXPECT_EQ(request.Cookie("ddprun_session"), "xyz==");
  EXPECT_EQ(request.Cookie("session"), "");
}

TEST(MetricsTextTest, JobsAreCountedAndLabelsEscaped) {
  std::vector<v1::Job> jobs = {SampleJob("a\"b\\c\nd"), SampleJob("w", v1::Job::STATE_LAST_CALL),
                               SampleJob("done", v1::Job::STATE_FINISHED)};
  *jobs[1].mutable_training() = TextProto<v1::Training>("step: 12 steps_behind: 2 loss: 0.5 ago { seconds: 1 }");
  jobs[1].mutable_hang()->set_text("rank 3 hangs");
  jobs[0].mutable_hang()->set_kind(v1::Hang::KIND_STRAGGLER);
  *jobs[1].mutable_goodput() = TextProto<v1::Goodput>(
      "waiting { seconds: 1 } training { seconds: 2 nanos: 500000000 } re_forming { seconds: 3 }");
  const EventCounts counts{.events = {{"round.assigned", 7}}, .failures = {{"signal", 2}}, .restarts = 3};
  const std::string text = MetricsText({.trouble = "disk full", .launchers = 4}, counts, {.cpu_seconds = 1.25}, jobs);
  for (const char* line : {"\nddprun_leader 1\n",
                           "\nddprun_ready 0\n",
                           "\nddprun_state_store_healthy 0\n",
                           "\nddprun_launchers_connected 4\n",
                           "\nddprun_rounds_assigned_total 7\n",
                           "\nddprun_restarts_total 3\n",
                           "\nddprun_worker_failures_total{kind=\"signal\"} 2\n",
                           "\nddprun_jobs{state=\"running\"} 1\n",
                           "\nddprun_jobs{state=\"last_call\"} 1\n",
                           "\nddprun_jobs{state=\"failed\"} 0\n",
                           "\nddprun_nodes 4\n",
                           "\nddprun_workers 8\n",
                           "\nddprun_job_round{job_id=\"a\\\"b\\\\c\\nd\"} 3\n",
                           "\nddprun_job_age_seconds{job_id=\"w\"} 90\n",
                           "\nprocess_cpu_seconds_total 1.25\n",
                           "\nddprun_job_step{job_id=\"w\"} 12\n",
                           "\nddprun_job_hung{job_id=\"a\\\"b\\\\c\\nd\"} 0\n",
                           "\nddprun_job_hung{job_id=\"w\"} 1\n",
                           "\nddprun_job_loss{job_id=\"w\"} 0.5\n",
                           "\nddprun_job_steps_behind{job_id=\"w\"} 2\n",
                           "\nddprun_job_time_seconds{job_id=\"w\",phase=\"waiting\"} 1\n",
                           "\nddprun_job_time_seconds{job_id=\"w\",phase=\"starting\"} 0\n",
                           "\nddprun_job_time_seconds{job_id=\"w\",phase=\"training\"} 2.5\n",
                           "\nddprun_job_time_seconds{job_id=\"w\",phase=\"re_forming\"} 3\n",
                           "\nddprun_job_time_seconds{job_id=\"w\",phase=\"lost\"} 0\n"}) {
    EXPECT_TRUE(absl::StrContains(text, line)) << line << "\nin\n" << text;
  }
  EXPECT_FALSE(absl::StrContains(text, "done"));
  EXPECT_FALSE(absl::StrContains(text, "ddprun_job_samples{"));
}

TEST(MetricsTextTest, SeriesAreBounded) {
  std::vector<v1::Job> jobs;
  for (int i = 0; i < 1000; ++i) jobs.push_back(SampleJob(absl::StrCat("job", i)));
  const std::string text = MetricsText({}, {}, {}, jobs);
  EXPECT_TRUE(absl::StrContains(text, "\nddprun_jobs_without_series 800\n"));
  EXPECT_TRUE(absl::StrContains(text, "{job_id=\"job199\"}"));
  EXPECT_FALSE(absl::StrContains(text, "{job_id=\"job200\"}"));
}

// Names of ddprun_* and process_* metrics in `text`.
std::set<std::string> MetricNamesIn(const std::string& text) {
  std::set<std::string> names;
  const std::regex name("(ddprun|process)_[a-z0-9_]+");
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) names.insert(it->str());
  return names;
}

TEST(MetricsTextTest, AlertsAndDashboard_UseExportedNames) {
  const std::set<std::string> exported = MetricNamesIn(MetricsText({}, EventCounter().counts(), {}, {SampleJob("j")}));
  for (const char* file : {"packaging/monitoring/alerts.yaml", "packaging/monitoring/dashboard.json"}) {
    const std::set<std::string> used = MetricNamesIn(testing::ReadFile(file));
    EXPECT_GT(used.size(), 8) << file;
    for (const std::string& name : used) EXPECT_TRUE(exported.count(name) > 0) << file << " names " << name;
  }
  EXPECT_TRUE(json::parse(testing::ReadFile("packaging/monitoring/dashboard.json"), nullptr, false).is_object());
}

Event NewEvent(absl::string_view kind, const std::string& job, uint64_t round = 0, int restarts = 0) {
  Event event = rendezvous::NewEvent(kind, "");
  event.set_job_id(job);
  event.set_round(round);
  event.set_restart_count(restarts);
  return event;
}

TEST(EventCounterTest, Add_Events_CountsKindsFailuresAndRestarts) {
  EventCounter counter;
  EXPECT_EQ(counter.counts().events.at("host.drained"), 0);
  counter.Add(NewEvent(event_kind::kJobCreated, "a", 0, 0));
  counter.Add(NewEvent(event_kind::kRoundStopped, "a", 1, 1));
  counter.Add(NewEvent(event_kind::kRoundAssigned, "a", 2, 1));
  counter.Add(NewEvent(event_kind::kNodeLost, "old"));
  counter.Add(NewEvent(event_kind::kRoundAssigned, "old", 9, 5));  // began under an earlier server
  counter.Add(NewEvent(event_kind::kRoundStopped, "old", 9, 7));
  EXPECT_EQ(counter.counts().restarts, 3);
  counter.Add(NewEvent(event_kind::kJobFailed, "old", 9, 7));
  counter.Add(NewEvent(event_kind::kJobCreated, "old", 0, 0));
  counter.Add(NewEvent(event_kind::kRoundStopped, "old", 1, 1));
  EXPECT_EQ(counter.counts().restarts, 4);
  EXPECT_EQ(counter.counts().events.at("round.assigned"), 2);
  const auto failed = [](int pid, int exit_code, int signal = 0, bool oom_killed = false) {
    rendezvous::WorkerFailure failure = rendezvous::NewFailure();
    failure.set_pid(pid);
    failure.set_exit_code(exit_code);
    failure.set_signal(signal);
    failure.set_oom_killed(oom_killed);
    return failure;
  };
  const std::pair<rendezvous::WorkerFailure, std::string> failures[] = {{failed(1, 2), "exit"},
                                                                        {failed(1, 0, 9), "signal"},
                                                                        {failed(1, 0, 9, true), "oom"},
                                                                        {failed(0, 127), "start"},
                                                                        {failed(1, 0), "report"}};
  for (const auto& [failure, kind] : failures) {
    Event event = NewEvent(event_kind::kWorkerFailed, "a");
    *event.mutable_failure() = failure;
    counter.Add(event);
    EXPECT_EQ(counter.counts().failures.at(kind), 1) << kind;
  }
}

class EventStreamTest : public ::testing::Test {
 protected:
  void Append(const std::string& job, uint64_t round) {
    Event event = NewEvent(event_kind::kRoundAssigned, job, round);
    event.mutable_time()->set_seconds(1'700'000'000);
    log_.Append(std::move(event));
  }
  std::string Next(const EventStream::Options& options) { return EventStream(&log_, "s", options).Next(); }

  rendezvous::EventLog log_{4};
};

TEST_F(EventStreamTest, Read_NewEvents_AreSent) {
  Append("a", 1);
  EventStream stream(&log_, "s", {});
  EXPECT_EQ(stream.Next(), "");
  Append("a", 2);
  const std::string part = stream.Next();
  EXPECT_TRUE(absl::StartsWith(part, "id: s-2\ndata: {")) << part;
  EXPECT_TRUE(absl::EndsWith(part, "}\n\n")) << part;
  EXPECT_TRUE(absl::StrContains(part, "\"kind\":\"round.assigned\"")) << part;
  EXPECT_TRUE(absl::StrContains(part, "\"time\":\"2023-11-14T22:13:20.000000Z\"")) << part;
  EXPECT_EQ(stream.Next(), "");
}

TEST_F(EventStreamTest, Read_LastEventId_ContinuesBehindIt) {
  for (int round = 1; round <= 3; ++round) Append(round == 2 ? "b" : "a", round);
  EXPECT_EQ(Next({.last_id = "s-3"}), "");
  EXPECT_TRUE(absl::StartsWith(Next({.last_id = "s-2"}), "id: s-3\n"));
  EXPECT_TRUE(absl::StartsWith(Next({.job_id = "a", .last_id = "s-1"}), "id: s-3\n"));
  EXPECT_FALSE(absl::StrContains(Next({.job_id = "a", .last_id = "s-0"}), "s-2"));
}

TEST_F(EventStreamTest, Backlog_IsOfTheJob) {
  for (int round = 1; round <= 4; ++round) Append(round == 4 ? "b" : "a", round);
  EXPECT_TRUE(absl::StartsWith(Next({.backlog = 1}), "id: s-4\n"));
  EXPECT_TRUE(absl::StartsWith(Next({.job_id = "a", .backlog = 2}), "id: s-2\n"));
  EXPECT_TRUE(absl::StartsWith(Next({.backlog = 100}), "id: s-1\n"));
}

TEST_F(EventStreamTest, AnotherServersId_Resets) {
  Append("a", 1);
  for (const char* id : {"old-1", "s-2", "s-x", "s-", "x"}) {
    EXPECT_TRUE(absl::StartsWith(Next({.last_id = id, .backlog = 1}), "event: reset\ndata: {}\n\nid: s-1\n")) << id;
  }
}

TEST_F(EventStreamTest, MissedEvents_AreCounted) {
  EventStream stream(&log_, "s", {});
  for (int round = 1; round <= 7; ++round) Append("a", round);
  EXPECT_TRUE(absl::StartsWith(stream.Next(), "event: gap\ndata: {\"missing\":3}\n\nid: s-4\n"));
}

class HttpApiTest : public ::testing::Test {
 protected:
  HttpApi Api(const std::string& token = "", bool any_host = false) { return ApiWith({.token = token}, any_host); }
  HttpApi ApiWith(const rendezvous::Credentials& credentials, bool any_host = false) {
    Sources sources;
    sources.list_jobs = [](absl::string_view after, size_t limit) {
      std::vector<v1::Job> jobs;
      for (const char* id : {"a", "b", "c"}) {
        if (id > after && jobs.size() < limit) jobs.push_back(SampleJob(id));
      }
      return jobs;
    };
    sources.get_job = [](absl::string_view id) {
      return id == "a/b" ? std::optional<v1::Job>(SampleJob("a/b")) : std::nullopt;
    };
    sources.server = [this] { return server_; };
    sources.counts = [] { return EventCounts(); };
    sources.events = &events_;
    sources.inspect = [this](const v1::InspectRequest& question, const rendezvous::Caller& caller,
                             v1::InspectResponse* response, std::function<void(absl::Status)> answer) {
      asked_ = question;
      asker_ = caller;
      response_ = response;
      answer_ = std::move(answer);
      if (!refusal_.ok()) answer_(refusal_);
    };
    return HttpApi(sources, credentials, any_host);
  }
  static Request Get(const std::string& target) {
    return {.method = "GET", .target = target, .headers = {{"host", "localhost:8080"}}};
  }

  ServerView server_;
  rendezvous::EventLog events_;
  // The last Inspect, and how it is refused at once.
  v1::InspectRequest asked_;
  rendezvous::Caller asker_;
  v1::InspectResponse* response_ = nullptr;
  std::function<void(absl::Status)> answer_;
  absl::Status refusal_;
};

TEST_F(HttpApiTest, Inspect_HolderOfAToken_AnswerFollowsLater) {
  const testing::TempDir dir;
  std::ofstream(dir.File("tokens")) << "launcher:alice 0123456789abcdef\nread:bob fedcba9876543210\n";
  HttpApi api = ApiWith({.token_file = dir.File("tokens")});
  Request request = Get("/api/v1/inspect?job=a/b&what=output&rank=3,7");
  EXPECT_EQ(api.Handle(request).status, 401);
  request.headers.emplace_back("authorization", "Bearer fedcba9876543210");
  EXPECT_EQ(api.Handle(request).status, 403) << "may read only";
  request.headers.back().second = "Bearer 0123456789abcdef";
  const Response response = api.Handle(request);
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.ends);
  EXPECT_EQ(asked_, TextProto<v1::InspectRequest>("job_id: 'a/b' inspect { ranks: [3, 7] what: WHAT_OUTPUT }"));
  EXPECT_EQ(asker_.name, "alice");
  EXPECT_EQ(response.more(), "") << "not yet";
  *response_ = TextProto<v1::InspectResponse>(R"(
      outputs { rank: 3 host: "n" text: "one\n\x1b[31mtw" end: 5 } outputs { rank: 3 host: "n" text: "o\xff\n" end: 9 }
      outputs { rank: 3 host: "n" is_stderr: true })");
  answer_(absl::OkStatus());
  const json answer = json::parse(response.more());
  EXPECT_EQ(answer["outputs"], json::parse(R"([
      {"rank": 3, "host": "n", "stream": "stdout", "seen": true, "text": "one\ntwo?"},
      {"rank": 3, "host": "n", "stream": "stderr", "seen": false, "text": ""}])"));
  EXPECT_TRUE(answer["silent"].empty());
}

TEST_F(HttpApiTest, Inspect_WrongOrRefused_HasAStatus) {
  HttpApi api = Api(kToken);
  const auto status = [&](const std::string& target) {
    Request request = Get(target);
    request.headers.emplace_back("authorization", absl::StrCat("Bearer ", kToken));
    return api.Handle(request).status;
  };
  EXPECT_EQ(status("/api/v1/inspect?job=a&what=other"), 400);
  EXPECT_EQ(status("/api/v1/inspect?job=a&what=stacks&rank=x"), 400);
  refusal_ = absl::FailedPreconditionError("no running round");
  EXPECT_EQ(status("/api/v1/inspect?job=a&what=usage"), 409);
  refusal_ = absl::NotFoundError("no such job");
  EXPECT_EQ(status("/api/v1/inspect?job=a&what=stacks"), 404);
}

// Without tokens the kernel says whose connection it is.
TEST_F(HttpApiTest, Inspect_WithoutToken_OnlyTheServersUser) {
  EXPECT_EQ(Api().Handle(Get("/api/v1/inspect?job=a&what=stacks")).status, 403);
  EXPECT_FALSE(answer_);
}

TEST_F(HttpApiTest, Events_AreAStream) {
  HttpApi api = Api();
  events_.Append(NewEvent(event_kind::kJobCreated, "a"));
  const Response response = api.Handle(Get("/api/v1/events?backlog=5&job=a"));
  EXPECT_EQ(response.type, "text/event-stream");
  EXPECT_EQ(response.body, "retry: 1000\n\n");
  ASSERT_TRUE(response.more != nullptr);
  EXPECT_TRUE(absl::StrContains(response.more(), "\"kind\":\"job.created\""));
  EXPECT_EQ(response.more(), "");
  EXPECT_EQ(api.Handle(Get("/api/v1/events?backlog=1001")).status, 400);
}

TEST_F(HttpApiTest, Paths_WithoutToken) {
  HttpApi api = Api();
  const struct {
    const char* method;
    const char* target;
    int status;
    const char* text;
  } cases[] = {
      {"GET", "/", 200, "<!doctype html>"},
      {"GET", "/page.js", 200, "use strict"},
      {"GET", "/page.css", 200, ":root"},
      {"GET", "/healthz", 200, "ok\n"},
      {"GET", "/readyz", 200, "ready\n"},
      {"GET", "/metrics", 200, "ddprun_leader 1\n"},
      {"GET", "/api/v1/server", 200, "\"leads\":true"},
      {"GET", "/api/v1/jobs", 200, "\"job_id\":\"c\""},
      {"GET", "/api/v1/jobs?after=b", 200, "{\"jobs\":[{"},
      {"GET", "/api/v1/jobs?limit=2", 200, "\"next\":\"b\""},
      {"GET", "/api/v1/jobs?limit=3", 200, "\"jobs\""},
      {"GET", "/api/v1/jobs?limit=0", 400, "limit must be a number from 1 to 1000"},
      {"GET", "/api/v1/jobs?limit=1001", 400, "limit must"},
      {"GET", "/api/v1/jobs?limit=-1", 400, "limit must"},
      {"GET", "/api/v1/jobs/a%2Fb", 200, "\"job_id\":\"a/b\""},
      {"GET", "/api/v1/jobs/none", 404, "job none not found"},
      {"GET", "/api/v1/jobs/", 404, "not found"},
      {"GET", "/favicon.ico", 404, "no such path"},
      {"GET", "/../etc/passwd", 404, "no such path"},
      {"GET", "nonsense", 400, "malformed path"},
      {"POST", "/api/v1/jobs", 405, "only GET"},
      {"DELETE", "/api/v1/jobs/a%2Fb", 405, "only GET"},
      {"GET", "/login", 404, "no such path"},
      {"POST", "/login", 400, "token=TOKEN"},
  };
  for (const auto& c : cases) {
    Request request = Get(c.target);
    request.method = c.method;
    const Response response = api.Handle(request);
    EXPECT_EQ(response.status, c.status) << c.method << " " << c.target;
    EXPECT_TRUE(absl::StrContains(response.body, c.text)) << c.target << ": " << response.body.substr(0, 300);
  }
}

TEST_F(HttpApiTest, OtherHostNames_AreRefusedWithoutToken) {
  Request request = Get("/api/v1/jobs");
  request.headers = {{"host", "rebound.example"}};
  EXPECT_EQ(Api().Handle(request).status, 421);
  EXPECT_EQ(Api("", true).Handle(request).status, 200);
  EXPECT_EQ(Api(kToken).Handle(request).status, 401);
  request.target = "/healthz";  // a probe names the pod
  EXPECT_EQ(Api().Handle(request).status, 200);
}

TEST_F(HttpApiTest, Token_IsNeededForAllButProbesAndThePage) {
  HttpApi api = Api(kToken);
  for (const char* target :
       {"/metrics", "/api/v1/jobs", "/api/v1/jobs/a%2Fb", "/api/v1/events", "/api/v1/server", "/x"}) {
    Request request = Get(target);
    EXPECT_EQ(api.Handle(request).status, 401) << target;
    request.headers.emplace_back("authorization", "Bearer wrong");
    EXPECT_EQ(api.Handle(request).status, 401) << target;
    request.headers.back().second = absl::StrCat("Bearer ", kToken);
    EXPECT_NE(api.Handle(request).status, 401) << target;
  }
  for (const char* target : {"/", "/page.js", "/page.css", "/healthz", "/readyz"}) {
    EXPECT_EQ(api.Handle(Get(target)).status, 200) << target;
  }
}

TEST_F(HttpApiTest, Token_SchemeInAnyCase) {
  HttpApi api = Api(kToken);
  Request request = Get("/api/v1/jobs");
  request.headers.emplace_back("authorization", "");
  for (const char* scheme : {"Bearer ", "bearer ", "BEARER "}) {
    request.headers.back().second = absl::StrCat(scheme, kToken);
    EXPECT_EQ(api.Handle(request).status, 200) << scheme;
    request.headers.back().second = absl::StrCat(scheme, "wrong");
    EXPECT_EQ(api.Handle(request).status, 401) << scheme;
  }
}

// A browser shares cookies among all ports of a host.
TEST_F(HttpApiTest, Login_ServersAtOneHostName_HaveCookiesOfTheirOwn) {
  HttpApi a = Api(kToken), b = Api(kToken);
  std::map<std::string, std::string> jar;
  const auto cookies = [&jar] { return absl::StrJoin(jar, "; ", absl::PairFormatter("=")); };
  for (const auto& [api, host] : {std::pair(&a, "localhost:8080"), std::pair(&b, "localhost:8081")}) {
    Request login{.method = "POST", .target = "/login", .body = "token=0123456789abcdef%2B%25"};
    login.headers = {{"host", host}};
    const Response response = api->Handle(login);
    ASSERT_EQ(response.status, 204) << response.body;
    const std::string cookie = response.headers[0].second;
    jar[cookie.substr(0, cookie.find('='))] =
        cookie.substr(cookie.find('=') + 1, cookie.find(';') - cookie.find('=') - 1);
  }
  for (const auto& [api, host] : {std::pair(&a, "localhost:8080"), std::pair(&b, "localhost:8081")}) {
    Request request = Get("/api/v1/jobs");
    request.headers = {{"host", host}, {"cookie", cookies()}};
    EXPECT_EQ(api->Handle(request).status, 200) << host << " " << cookies();
  }
}

TEST_F(HttpApiTest, TokenOfAnyRole_MaySeeAll) {
  const testing::TempDir folder;
  std::ofstream(folder.File("token")) << "read:a token-of-the-page\nlauncher:a token-of-launchers\n";
  HttpApi api = ApiWith({.token_file = folder.File("token")});
  for (const char* token :
       {"token-of-the-page", "token-of-launchers", "read:a token-of-the-page", "no-token-of-ours"}) {
    Request request = Get("/api/v1/jobs");
    request.headers.emplace_back("authorization", absl::StrCat("Bearer ", token));
    EXPECT_EQ(api.Handle(request).status, absl::StartsWith(token, "token-of-") ? 200 : 401) << token;
  }
}

TEST_F(HttpApiTest, Login_GivesACookie) {
  HttpApi api = Api(kToken);
  Request login{.method = "POST", .target = "/login", .body = "token=0123456789abcdef%2B%25"};
  login.headers = Get("/login").headers;
  const Response response = api.Handle(login);
  ASSERT_EQ(response.status, 204) << response.body;
  const std::string cookie = response.headers[0].second;
  EXPECT_TRUE(absl::StrContains(cookie, "; HttpOnly; SameSite=Strict")) << cookie;
  EXPECT_FALSE(absl::StrContains(cookie, "0123456789abcdef+"));
  Request request = Get("/api/v1/jobs");
  request.headers.emplace_back("cookie", cookie.substr(0, cookie.find(';')));
  EXPECT_EQ(api.Handle(request).status, 200);
  EXPECT_EQ(Api(kToken).Handle(request).status, 401);  // the cookie of another process
  request.headers.back().second += "0";
  EXPECT_EQ(api.Handle(request).status, 401);
  login.body = "token=wrong";
  EXPECT_EQ(api.Handle(login).status, 401);
  login.body = "token=%";
  EXPECT_EQ(api.Handle(login).status, 400);
}

TEST_F(HttpApiTest, Readiness_NotReady_NamesReason) {
  HttpApi api = Api();
  server_.trouble = "disk full";
  EXPECT_EQ(api.Handle(Get("/readyz")).body, "disk full\n");
  server_ = {.leads = false, .leader = "b:29400"};
  const Response response = api.Handle(Get("/readyz"));
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.body, "this server is not the leader; b:29400 is\n");
  EXPECT_EQ(api.Handle(Get("/healthz")).status, 200);
}

TEST_F(HttpApiTest, Follower_NamesTheLeaderInPlaceOfJobs) {
  HttpApi api = Api();
  server_ = {.leads = false, .leader = "b:29400"};
  for (const char* path : {"/api/v1/jobs", "/api/v1/jobs/c", "/api/v1/events"}) {
    const Response response = api.Handle(Get(path));
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_EQ(json::parse(response.body)["leader"], "b:29400") << response.body;
    EXPECT_EQ(json::parse(response.body)["error"], "this server is not the leader; b:29400 is") << response.body;
  }
  for (const char* path : {"/", "/metrics", "/api/v1/server"}) EXPECT_EQ(api.Handle(Get(path)).status, 200) << path;
  server_.leads = true;
  EXPECT_EQ(api.Handle(Get("/api/v1/jobs")).status, 200);
}

TEST(HttpOptionsTest, WithoutToken_OnlyTheLoopbackOrOpen) {
  std::vector<std::string> warnings;
  for (const char* address : {"127.0.0.1:0", "localhost:80", "[::1]:80"}) {
    EXPECT_TRUE(CheckRendezvousdOptions({.http = address}, &warnings).ok()) << address;
  }
  for (const char* address : {"0.0.0.0:80", "[::]:80", "10.0.0.1:80", "head-node:80"}) {
    const absl::Status status = CheckRendezvousdOptions({.http = address}, &warnings);
    EXPECT_TRUE(absl::StrContains(status.message(), "--http-open")) << status;
    EXPECT_TRUE(CheckRendezvousdOptions({.http = address, .http_open = true}, &warnings).ok()) << address;
    EXPECT_TRUE(CheckRendezvousdOptions({.credentials = {.token = kToken}, .http = address}, &warnings).ok());
  }
  EXPECT_FALSE(rendezvous::ParseRendezvousdOptions({"--http=80"}).ok());
}

}  // namespace
}  // namespace ddprun::http

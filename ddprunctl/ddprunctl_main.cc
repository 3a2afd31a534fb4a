// ddprunctl: shows and controls the jobs of a rendezvous server.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/endpoint.h"
#include "base/local_jobs.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "base/text.h"
#include "ddprunctl/ctl_options.h"
#include "ddprunctl/output_view.h"
#include "ddprunctl/profile.h"
#include "ddprunctl/tables.h"
#include "proto/control.grpc.pb.h"
#include "proto/rendezvous.grpc.pb.h"
#include "proto/time.h"
#include "rendezvous/client/reconnector.h"
#include "rendezvous/core/credentials.h"
#include "rendezvous/wire/byte_buffer.h"
#include "rendezvous/wire/channel_security.h"
#include "rendezvous/wire/completion.h"
#include "rendezvous/wire/credential_files.h"
#include "rendezvous/wire/leader_hint.h"
#include "rendezvous/wire/message_json.h"
#include "worker_contract/exit_codes.h"

namespace ddprun::ctl {
namespace {

// Calls the leader of one or more servers. Thread-compatible.
class Client {
 public:
  static constexpr absl::Duration kTimeout = absl::Seconds(10);

  // REQUIRES: CheckCredentials succeeded. `servers`: HOST:PORT each, at least one.
  Client(std::vector<std::string> servers, rendezvous::Credentials credentials)
      : servers_(std::move(servers)), credentials_(std::move(credentials)) {}

  // The context and stubs of one call.
  struct Target {
    grpc::ClientContext* context;
    v1::Rendezvous::Stub* rendezvous;
    v1::Control::Stub* control;
  };
  using Make = std::function<grpc::Status(const Target& target)>;

  // Makes the call on one server after another until a leader answers.
  //   UNAVAILABLE  none is reachable, or none leads; the message names them. Or the leader returned it.
  //   others       as returned by the server.
  absl::Status Call(const Make& make, absl::Duration timeout = kTimeout);

  // True if a server may have received a call that failed without an answer.
  bool may_have_arrived() const { return may_have_arrived_; }

 private:
  // `leader`: set if the server does not lead and named the leader. `answered`: true if the status comes from the
  // leader or is not a server's fault; false if it says why there is no answer.
  absl::Status CallOne(const std::string& server, const Make& make, absl::Duration timeout, std::string* leader,
                       bool* answered);

  std::vector<std::string> servers_;
  const rendezvous::Credentials credentials_;
  bool may_have_arrived_ = false;
};

// Redirects followed per call.
constexpr int kMaxRedirects = 3;
constexpr int kMaxAnswerBytes = 256 << 20;  // enough for a job of 100,000 nodes

// Returns the caller's authorization; empty if there is none.
absl::StatusOr<std::string> AuthorizationOf(rendezvous::ClientSecurity* security) {
  if (std::optional<std::string> known = security->Authorization()) return *std::move(known);
  std::promise<absl::StatusOr<std::string>> asked;
  std::future<absl::StatusOr<std::string>> answer = asked.get_future();
  security->AskForAuthorization([&asked](absl::StatusOr<std::string> text) { asked.set_value(std::move(text)); });
  return answer.get();
}

// Describes why a server did not answer: "127.0.0.1:29400: connection refused". `connected`: there was a connection.
std::string DescribeSilence(const std::string& server, bool connected, bool has_tls, const absl::Status& status) {
  constexpr auto kNone = rendezvous::StreamProgress::kNone;
  const std::string what = rendezvous::DescribeEnd(server, kNone, status).reason;
  if (connected || !rendezvous::IsTlsFailure(kNone, status)) return what;
  if (has_tls) return absl::StrCat(server, ": ", rendezvous::DescribeTlsFailure(status));
  return absl::StrCat(what, " (a server with TLS needs --tls-ca, and perhaps --tls-cert and --tls-key)");
}

absl::Status Client::CallOne(const std::string& server, const Make& make, absl::Duration timeout, std::string* leader,
                             bool* answered) {
  *answered = true;
  DDPRUN_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(server));
  rendezvous::ClientSecurity security(credentials_, endpoint.host);
  DDPRUN_ASSIGN_OR_RETURN(const std::string authorization, AuthorizationOf(&security));
  *answered = false;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);  // event streams may be silent for a long time
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  const std::shared_ptr<grpc::ChannelCredentials> credentials = security.ForChannel(&arguments);
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(server, credentials, arguments);
  v1::Rendezvous::Stub rendezvous_stub(channel);
  v1::Control::Stub control_stub(channel);
  grpc::ClientContext context;
  if (timeout < absl::InfiniteDuration()) {
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(absl::ToInt64Milliseconds(timeout)));
  }
  if (!authorization.empty()) context.AddMetadata(rendezvous::kAuthorization, authorization);
  grpc::Status status = make(Target{&context, &rendezvous_stub, &control_stub});
  const auto& trailing = context.GetServerTrailingMetadata();
  if (const auto hint = trailing.find(rendezvous::kLeaderKey); hint != trailing.end()) {
    *leader = std::string(hint->second.data(), hint->second.size());
  }
  if (trailing.count(rendezvous::kFollowerKey) > 0) {
    return absl::UnavailableError(absl::StrCat(server, ": ", status.error_message()));
  }
  const absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  // A lost connection is idle.
  const grpc_connectivity_state state = channel->GetState(/*try_to_connect=*/false);
  const bool lost = absl::IsUnavailable(result) && state == GRPC_CHANNEL_IDLE;
  if (lost || absl::IsDeadlineExceeded(result) || absl::IsCancelled(result)) may_have_arrived_ = true;
  // If the connection still exists, UNAVAILABLE comes from the server.
  *answered = !absl::IsUnavailable(result) || state == GRPC_CHANNEL_READY;
  if (*answered) return result;
  return absl::UnavailableError(DescribeSilence(server, state == GRPC_CHANNEL_IDLE, security.has_tls(), result));
}

absl::Status Client::Call(const Make& make, absl::Duration timeout) {
  std::vector<std::string> queue = servers_, problems;
  const size_t most = servers_.size() + kMaxRedirects;
  for (size_t i = 0; i < queue.size() && i < most; ++i) {
    std::string leader;
    bool answered = false;
    const absl::Status status = CallOne(queue[i], make, timeout, &leader, &answered);
    if (answered) return status;
    problems.emplace_back(status.message());
    if (leader.empty()) continue;
    // Try the leader's address next, unless it has just been tried.
    if (std::find(queue.begin(), queue.begin() + static_cast<ptrdiff_t>(i) + 1, leader) ==
        queue.begin() + static_cast<ptrdiff_t>(i) + 1) {
      queue.insert(queue.begin() + static_cast<ptrdiff_t>(i) + 1, leader);
    }
  }
  return absl::UnavailableError(
      absl::StrCat("no answer from the rendezvous server (--server): ", absl::StrJoin(problems, "; ")));
}

using rendezvous::ToJson;
using worker_contract::kExitFailed;
using worker_contract::kExitUsage;
constexpr int kExitNotFound = 3;
constexpr int kJobsPerPage = 1000;
constexpr size_t kMaxHostBytes = 300;
constexpr auto kWatchInterval = std::chrono::seconds(1);
constexpr absl::Duration kPatience = absl::Seconds(30);  // for finding a leader; as in launchers
constexpr auto kTopInterval = std::chrono::seconds(2);
// Launchers take longer to answer a question with positions.
constexpr absl::Duration kShortestAnswer = absl::Milliseconds(500);
constexpr char kClearScreen[] = "\033[H\033[2J";

int Fail(const absl::Status& status, int exit_status) {
  fprintf(stderr, "ddprunctl: %s\n", std::string(status.message()).c_str());
  return exit_status;
}

int Fail(const absl::Status& status) { return Fail(status, absl::IsNotFound(status) ? kExitNotFound : kExitFailed); }

void Print(const std::string& text) {
  fwrite(text.data(), 1, text.size(), stdout);
  fflush(stdout);
}

void Print(const nlohmann::json& value) { Print(rendezvous::JsonText(value) + "\n"); }

// A launcher whose server is only in its process has told ddprunctl a token for it.
rendezvous::Credentials CredentialsFor(const std::string& token, const rendezvous::Credentials& own) {
  if (token.empty()) return own;
  rendezvous::Credentials credentials;
  credentials.token = token;
  return credentials;
}

class Commands {
 public:
  explicit Commands(const Options& options) : options_(options), client_(options.servers, options.credentials) {}

  int Run() {
    const std::string& command = options_.command;
    if (command == "jobs") return Jobs();
    if (command == "show" || command == "wait") return Show();
    if (command == "nodes" || command == "spares") return Nodes();
    if (command == "hosts") return Hosts();
    if (command == "events") return Events();
    if (command == "stacks") return Stacks();
    if (command == "profile") return WriteProfile();
    if (command == "logs") return Logs();
    if (command == "top") return Top();
    return Change();
  }

 private:
  absl::Status ListJobs(Client* client, std::vector<v1::Job>* jobs) {
    v1::ListJobsRequest request;
    request.set_page_size(kJobsPerPage);
    do {
      v1::ListJobsResponse response;
      DDPRUN_RETURN_IF_ERROR(client->Call([&](const Client::Target& target) {
        return target.rendezvous->ListJobs(target.context, request, &response);
      }));
      for (v1::Job& job : *response.mutable_jobs()) jobs->push_back(std::move(job));
      request.set_page_token(response.next_page_token());
    } while (!request.page_token().empty());
    return absl::OkStatus();
  }

  // Without a named server, the jobs of all servers that launchers on this host use. Several names may mean one server.
  absl::Status ListLocalJobs(std::vector<v1::Job>* jobs) {
    std::map<std::string, std::string> servers;  // values are their tokens
    if (!options_.names_servers) {
      for (const LocalJob& job : FindLocalJobs()) servers.emplace(job.server, job.token);
    }
    if (servers.empty()) return ListJobs(&client_, jobs);
    std::vector<v1::Job> found;
    absl::Status status;
    for (const auto& [server, token] : servers) {
      Client client(absl::StrSplit(server, ','), CredentialsFor(token, options_.credentials));
      status.Update(ListJobs(&client, &found));
    }
    std::set<std::string> known;
    for (v1::Job& job : found) {
      if (known.insert(absl::StrCat(job.begin().seconds(), ".", job.begin().nanos(), " ", job.job_id())).second) {
        jobs->push_back(std::move(job));
      }
    }
    return jobs->empty() ? status : absl::OkStatus();
  }

  absl::Status GetJob(const std::string& job_id, v1::Job* job) {
    v1::GetJobRequest request;
    request.set_job_id(job_id);
    return client_.Call(
        [&](const Client::Target& target) { return target.rendezvous->GetJob(target.context, request, job); });
  }

  int Jobs() {
    std::vector<v1::Job> jobs;
    if (absl::Status status = ListLocalJobs(&jobs); !status.ok()) return Fail(status);
    if (!options_.json) return Print(JobsTable(jobs)), 0;
    nlohmann::json list = nlohmann::json::array();
    for (const v1::Job& job : jobs) list.push_back(ToJson(job));
    Print(nlohmann::json{{"jobs", std::move(list)}});
    return 0;
  }

  // Decides whether to retry a failed call of a command that continues across server restarts. Waits before it returns
  // true.
  bool TryAgain(const absl::Status& status) {
    const bool found = answered_ > SteadyTime::InfinitePast();
    // A server that ends cancels its calls. After a restart without records it knows a job only once its launchers have
    // reconnected.
    const bool lost = absl::IsUnavailable(status) || absl::IsCancelled(status) || (absl::IsNotFound(status) && found);
    if (!options_.follow || !lost || SteadyNow() >= answered_ + kPatience) return false;
    if (!std::exchange(searching_, true)) {
      fprintf(stderr, "ddprunctl: lost the rendezvous server; trying again for %s\n",
              absl::FormatDuration(kPatience).c_str());
    }
    std::this_thread::sleep_for(kWatchInterval);
    return true;
  }
  void Answered() {
    answered_ = SteadyNow();
    searching_ = false;
  }

  int Show() {
    while (true) {
      v1::Job job;
      if (absl::Status status = GetJob(options_.job_id, &job); !status.ok()) {
        if (TryAgain(status)) continue;
        return Fail(status);
      }
      Answered();
      const bool quiet = options_.command == "wait" && !job.has_verdict();
      if (options_.json && !quiet) {
        Print(ToJson(job));
      } else if (!quiet) {
        Print(absl::StrCat(
            options_.command == "show" && options_.follow && isatty(STDOUT_FILENO) != 0 ? kClearScreen : "",
            DescribeJob(job)));
      }
      if (!options_.follow) return 0;
      if (job.has_verdict()) {
        return job.verdict().succeeded() ? 0 : std::max(job.verdict().exit_code(), kExitFailed);
      }
      std::this_thread::sleep_for(kWatchInterval);
    }
  }

  int Nodes() {
    std::vector<v1::Job> jobs;
    if (options_.job_id.empty()) {
      if (absl::Status status = ListJobs(&client_, &jobs); !status.ok()) return Fail(status);
    } else {
      jobs.emplace_back().set_job_id(options_.job_id);
    }
    std::vector<JobNode> nodes;
    for (const v1::Job& listed : jobs) {
      if (listed.has_verdict()) continue;  // has no nodes any more
      v1::Job job;
      const absl::Status status = GetJob(listed.job_id(), &job);
      // The job may have been forgotten since it was listed.
      if (!status.ok() && (!absl::IsNotFound(status) || !options_.job_id.empty())) return Fail(status);
      for (v1::Node& node : *job.mutable_nodes()) {
        if (options_.command == "spares" && node.state() != v1::Node::STATE_SPARE) continue;
        nodes.emplace_back(job.job_id(), std::move(node));
      }
    }
    if (!options_.json) return Print(NodesTable(nodes)), 0;
    nlohmann::json list = nlohmann::json::array();
    for (const auto& [job_id, node] : nodes) {
      list.push_back(ToJson(node));
      list.back()["job_id"] = job_id;
    }
    Print(nlohmann::json{{"nodes", std::move(list)}});
    return 0;
  }

  absl::Status ListHosts(v1::ListHostsResponse* response) {
    return client_.Call([&](const Client::Target& target) {
      return target.control->ListHosts(target.context, v1::ListHostsRequest(), response);
    });
  }

  int Hosts() {
    v1::ListHostsResponse response;
    if (absl::Status status = ListHosts(&response); !status.ok()) return Fail(status);
    if (options_.json) {
      Print(ToJson(response));
    } else {
      Print(HostsTable(response));
    }
    return 0;
  }

  absl::Status Inspect(v1::Inspect question, v1::InspectResponse* response) {
    v1::InspectRequest request;
    request.set_job_id(options_.job_id);
    *request.mutable_inspect() = std::move(question);
    request.mutable_inspect()->mutable_ranks()->Assign(options_.ranks.begin(), options_.ranks.end());
    return client_.Call(
        [&](const Client::Target& target) { return target.control->Inspect(target.context, request, response); });
  }

  // A job that ends meanwhile has a shorter profile.
  int WriteProfile() {
    const SteadyTime begin = SteadyNow();
    const absl::Duration length = absl::Seconds(options_.seconds), interval = absl::Seconds(1 / options_.rate);
    FILE* file = nullptr;
    Profile profile;
    int samples = 0;
    absl::Status status;
    for (SteadyTime next = begin; next < begin + length; next = std::max(next + interval, SteadyNow())) {
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(next - SteadyNow()));
      const SteadyTime asked = SteadyNow();
      v1::InspectResponse sample;
      v1::Inspect question;
      question.set_native(true);
      status = Inspect(std::move(question), &sample);
      if (!status.ok() && samples == 0) return Fail(status);
      if (!status.ok()) break;
      profile.Add(asked + (SteadyNow() - asked) / 2 - begin, sample);
      if (++samples > 1) continue;
      file = fopen(options_.file.c_str(), "we");
      if (file == nullptr) return Fail(absl::ErrnoToStatus(errno, absl::StrCat("can't write ", options_.file)));
    }
    const std::string trace = profile.TraceText(SteadyNow() - begin);
    const bool complete = fwrite(trace.data(), 1, trace.size(), file) == trace.size();
    if (fclose(file) != 0 || !complete) {
      return Fail(absl::ErrnoToStatus(errno, absl::StrCat("can't write ", options_.file)));
    }
    if (!status.ok()) fprintf(stderr, "ddprunctl: warning: ended early: %s\n", std::string(status.message()).c_str());
    Print(absl::StrCat("wrote ", options_.file, ": ", samples, " samples of ", profile.ranks(),
                       " ranks; open it in https://ui.perfetto.dev\n"));
    return 0;
  }

  void ShowLines(const std::vector<OutputLine>& lines, OutputView* view) {
    std::string text;
    for (const OutputLine& line : lines) absl::StrAppend(&text, options_.json ? JsonLine(line) : LineText(line));
    Print(text);
    for (const std::string& note : view->TakeNotes()) fprintf(stderr, "ddprunctl: %s\n", note.c_str());
  }

  static std::string JsonLine(const OutputLine& line) {
    nlohmann::json object = {
        {"rank", line.rank}, {"host", line.host}, {"stream", line.is_stderr ? "stderr" : "stdout"}};
    if (line.gap) {
      object["gap"] = true;
    } else {
      object["line"] = line.text;
    }
    return rendezvous::JsonText(object) + "\n";
  }

  // Decides whether to continue without an answer: no round of the job is running now, or the server has no answer now.
  // Waits before it returns true. `*ended`: the job has.
  bool AskAgain(const absl::Status& status, bool* ended) {
    v1::Job job;
    if (absl::IsFailedPrecondition(status) && GetJob(options_.job_id, &job).ok() && job.has_verdict()) {
      *ended = true;
      return false;
    }
    if (!absl::IsFailedPrecondition(status) && !absl::IsResourceExhausted(status)) return TryAgain(status);
    Answered();
    std::this_thread::sleep_for(kWatchInterval);
    return true;
  }

  int Logs() {
    constexpr size_t kLines = 20;
    OutputView view(options_.lines.value_or(options_.since ? std::numeric_limits<size_t>::max() : kLines));
    for (bool first = true; true;) {
      v1::Inspect question;
      question.set_what(v1::Inspect::WHAT_OUTPUT);
      view.AddPositions(&question);
      if (first && options_.since) *question.mutable_since() = FromDuration(*options_.since);
      const SteadyTime asked = SteadyNow();
      v1::InspectResponse response;
      const absl::Status status = Inspect(std::move(question), &response);
      if (!status.ok()) {
        bool ended = false;
        if (options_.follow && AskAgain(status, &ended)) continue;
        if (!ended || first) return Fail(status);
        return ShowLines(view.Finish(), &view), 0;
      }
      Answered();
      ShowLines(view.Take(response, /*last=*/!options_.follow), &view);
      if (!options_.follow) return 0;
      // Launchers answer a second after the question, but not those that are gone.
      if (!std::exchange(first, false) && SteadyNow() < asked + kShortestAnswer) {
        std::this_thread::sleep_for(kWatchInterval);
      }
    }
  }

  int Top() {
    const bool repeats = !options_.once && !options_.json && isatty(STDOUT_FILENO) != 0;
    for (bool first = true; true; first = false) {
      v1::Inspect question;
      question.set_what(v1::Inspect::WHAT_USAGE);
      v1::InspectResponse response;
      const absl::Status status = Inspect(std::move(question), &response);
      bool ended = false;
      if (!status.ok() && repeats && !first && AskAgain(status, &ended)) continue;
      if (ended) return 0;
      if (!status.ok()) return Fail(status);
      Answered();
      if (options_.json) {
        Print(ToJson(response));
      } else {
        Print(absl::StrCat(repeats ? kClearScreen : "", UsageTable(response)));
      }
      if (!repeats) return 0;
      std::this_thread::sleep_for(kTopInterval);
    }
  }

  int Stacks() {
    v1::Inspect question;
    question.set_native(options_.native);
    v1::InspectResponse response;
    if (absl::Status status = Inspect(std::move(question), &response); !status.ok()) return Fail(status);
    if (options_.json) {
      Print(ToJson(response));
    } else {
      Print(StacksText(response));
    }
    return 0;
  }

  // Reads a stream of events; with `follow`, until the server ends.
  grpc::Status ReadEvents(const Client::Target& target, uint64_t after, bool follow,
                          absl::FunctionRef<void(const v1::Event&)> take) {
    v1::WatchEventsRequest request;
    request.set_after(after);
    request.set_job_id(options_.job_id);
    request.set_follow(follow);
    const auto reader = target.control->WatchEvents(target.context, request);
    reader->WaitForInitialMetadata();
    if (target.context->GetServerInitialMetadata().count(rendezvous::kServerMarker) > 0) Answered();
    for (v1::Event event; reader->Read(&event);) take(event);
    return reader->Finish();
  }

  int Events() {
    // After a takeover, events have other numbers but keep their times.
    constexpr size_t kMostRemembered = 20'000;  // more than a server keeps
    std::set<std::string> known;
    const auto learn = [&known](const v1::Event& event) {
      const std::string key = absl::StrCat(event.time().seconds(), ".", event.time().nanos(), " ", event.kind(), " ",
                                           event.node_id(), " ", event.job_id());
      const bool is_new = known.insert(key).second;
      if (known.size() > kMostRemembered) known.erase(known.begin());  // approximately the oldest
      return is_new;
    };
    if (options_.follow && options_.after > 0) {
      const absl::Status status = client_.Call([&](const Client::Target& target) {
        return ReadEvents(target, 0, /*follow=*/false, [&](const v1::Event& event) {
          if (event.number() <= options_.after) learn(event);
        });
      });
      if (!status.ok()) return Fail(status);
      answered_ = SteadyTime::InfinitePast();
    }
    const auto read = [&](const Client::Target& target) {
      const bool again = answered_ > SteadyTime::InfinitePast();
      return ReadEvents(target, again ? 0 : options_.after, options_.follow, [&](const v1::Event& event) {
        if (!learn(event) && again) return;
        if (options_.json) {
          Print(ToJson(event));
        } else {
          Print(EventLine(event));
        }
      });
    };
    while (true) {
      const absl::Status status = client_.Call(read, options_.follow ? absl::InfiniteDuration() : Client::kTimeout);
      if (status.ok()) return 0;
      if (!TryAgain(status)) return Fail(status);
    }
  }

  int Change() {
    v1::CommandResponse response;
    const absl::Status status = client_.Call([&](const Client::Target& target) { return Command(target, &response); });
    if (!status.ok() && client_.may_have_arrived() && !absl::StrContains(status.message(), "not known whether")) {
      return Fail(absl::Status(status.code(), absl::StrCat(status.message(),
                                                           "; it is not known whether the command took "
                                                           "effect: check, and repeat it if it did not")));
    }
    if (!status.ok()) return Fail(status);
    if (options_.json) Print(ToJson(response));
    if (options_.command == "drain") WarnOfUnknownHost();
    return 0;
  }

  // A host may be drained before it has nodes, but it may also be a mistake.
  void WarnOfUnknownHost() {
    v1::ListHostsResponse response;
    const absl::Status status = ListHosts(&response);
    for (const v1::Host& host : response.hosts()) {
      if (!status.ok() || host.name() != options_.host || host.nodes() > 0) continue;
      const std::string shown = OneLine(options_.host, kMaxHostBytes);
      fprintf(stderr,
              "ddprunctl: warning: %s is drained, but has no nodes now; check the name with 'ddprunctl hosts' (to "
              "undo: ddprunctl undrain %s)\n",
              shown.c_str(), shown.c_str());
    }
  }

  grpc::Status Command(const Client::Target& target, v1::CommandResponse* response) {
    if (options_.command == "stop") {
      v1::StopJobRequest request;
      request.set_job_id(options_.job_id);
      return target.control->StopJob(target.context, request, response);
    }
    if (options_.command == "resize") {
      v1::ResizeJobRequest request;
      request.set_job_id(options_.job_id);
      request.set_min_nodes(options_.min_nodes);
      request.set_max_nodes(options_.max_nodes);
      return target.control->ResizeJob(target.context, request, response);
    }
    if (options_.command == "kick") {
      v1::KickNodeRequest request;
      request.set_job_id(options_.job_id);
      request.set_node(options_.node);
      return target.control->KickNode(target.context, request, response);
    }
    if (options_.command == "drain") {
      v1::DrainHostRequest request;
      request.set_host(options_.host);
      return target.control->DrainHost(target.context, request, response);
    }
    v1::UndrainHostRequest request;
    request.set_host(options_.host);
    return target.control->UndrainHost(target.context, request, response);
  }

  const Options options_;
  Client client_;
  SteadyTime answered_ = SteadyTime::InfinitePast();  // when a leader last answered
  bool searching_ = false;                            // looking for another leader
};

// Without a named server, uses that of the job's launcher on this host; JOB may be the launcher's process.
void FindServer(Options* options) {
  if (options->names_servers || options->job_id.empty()) return;
  for (const LocalJob& job : FindLocalJobs()) {
    if (job.job_id != options->job_id && absl::StrCat(job.launcher) != options->job_id) continue;
    options->servers = absl::StrSplit(job.server, ',');
    options->job_id = job.job_id;
    options->credentials = CredentialsFor(job.token, options->credentials);
    return;
  }
}

int Main(int argc, char** argv) {
  auto line = ParseCommandLine({argv + 1, argv + argc}, [](const char* name) {
    const char* value = getenv(name);
    return std::string(value == nullptr ? "" : value);
  });
  if (!line.ok()) return Fail(line.status(), kExitUsage);
  if (!line->answer.empty()) return Print(line->answer), 0;
  rendezvous::Credentials& credentials = line->options.credentials;
  rendezvous::TakeTokenFromEnvironment(&credentials);
  // As launchers do in a SLURM job; without effect where MUNGE does not work.
  credentials.munge = !credentials.has_token() && !credentials.has_tls() && getenv("SLURM_JOB_ID") != nullptr;
  std::vector<std::string> warnings;
  const absl::Status checked = CheckCredentials(credentials, rendezvous::CredentialSide::kClient, &warnings);
  if (!checked.ok()) return Fail(checked, kExitUsage);
  for (const std::string& warning : warnings) fprintf(stderr, "ddprunctl: %s\n", warning.c_str());
  if (absl::Status status = rendezvous::PrepareGrpc(); !status.ok()) return Fail(status);
  FindServer(&line->options);
  return Commands(line->options).Run();
}

}  // namespace
}  // namespace ddprun::ctl

int main(int argc, char** argv) {
  ddprun::ResetSignals();
  return ddprun::ctl::Main(argc, argv);
}

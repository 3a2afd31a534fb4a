// Simulates a job of any size for the page: nodes without workers.
//
//   crowd SERVER JOB NODES SLOTS
//
// Joins with NODES nodes from one process, each a client of its own on one connection, and prints "round N" when all
// have their ranks. Reads lines of standard input:
//   progress STEP PHASE LOSS   every rank is there; rank 1 is 3 steps behind
//   fail NODE MESSAGE          a worker of that node fails
//   hang TEXT, continue TEXT, straggler TEXT   group rank 0 reports a hang, its end, or a straggler, rank 1; " | "
//                                              stands for a line end
//   finish                     all workers succeed
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/endpoint.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "base/text.h"
#include "rendezvous/client/grpc_client.h"
#include "rendezvous/core/messages.h"

namespace ddprun::rendezvous {
namespace {

std::atomic<int> in_round{0};
int all_nodes = 0;

// Called by the client's thread and by main.
class Node {
 public:
  Node(const Endpoint& server, const std::string& job, int number, int slots) {
    join_.set_job_id(job);
    join_.set_node_id(RandomId());
    join_.set_incarnation(0);
    join_.set_host(absl::StrCat("node", number));
    join_.set_address(absl::StrCat("10.0.", number / 250, ".", number % 250 + 1));
    join_.set_store_port(40'000);
    join_.set_slots(slots);
    join_.set_session_secret(RandomId());
    join_.set_store_secret(RandomId());
    join_.mutable_settings()->set_max_nodes(all_nodes);
    join_.mutable_settings()->set_min_nodes(all_nodes);
    join_.mutable_settings()->set_max_restarts(3);
    *join_.mutable_settings()->mutable_join_timeout() = FromDuration(absl::Hours(1));
    *join_.mutable_settings()->mutable_heartbeat_timeout() = FromDuration(absl::Hours(1));
    *join_.mutable_settings()->mutable_reconnect_grace() = FromDuration(absl::Hours(1));
    MutexLock lock(&mutex_);  // it may call at once
    client_ = NewGrpcClient(server, [this](ClientEvent event) { OnEvent(event); });
  }

  void Report(int64_t step, const std::string& phase, double loss) {
    MutexLock lock(&mutex_);
    if (!join_.has_current()) return;
    Progress progress;
    progress.set_round(join_.current().round());
    for (int i = 0; i < join_.slots(); ++i) {
      const bool late = join_.current().base_rank() + i == 1;
      RankProgress* rank = progress.add_ranks();
      rank->set_local_rank(i);
      rank->set_step(late ? std::max<int64_t>(step - 3, 0) : step);
      rank->set_phase(phase);
      rank->set_loss(loss);
      *rank->mutable_ago() = FromDuration(absl::ZeroDuration());
    }
    client_->Send(progress);
  }
  void Fail(const std::string& message) {
    MutexLock lock(&mutex_);
    if (!join_.has_current()) return;
    WorkerFailure failure = NewFailure();
    failure.set_host(join_.host());
    failure.set_rank(join_.current().base_rank());
    failure.set_local_rank(0);
    failure.set_pid(4711);
    failure.set_exit_code(1);
    *failure.mutable_at() = FromTime(absl::FromUnixSeconds(1'700'000'000));
    failure.set_message(message);
    client_->Send(NewWorkerFailed(join_.current().round(), failure));
  }
  void ReportHang(const std::string& text, Hang::Kind kind) {
    MutexLock lock(&mutex_);
    if (!join_.has_current()) return;
    client_->Send(NewHang(kind, join_.current().round(), absl::StrReplaceAll(text, {{" | ", "\n"}}), {1}));
  }
  void Finish() {
    MutexLock lock(&mutex_);
    if (join_.has_current()) client_->Send(NewGroupSucceeded(join_.current().round()));
  }

 private:
  void OnEvent(const ClientEvent& event) {
    MutexLock lock(&mutex_);
    if (std::holds_alternative<Connected>(event)) {
      join_.set_incarnation(join_.incarnation() + 1);
      client_->Send(join_);
    }
    const auto* message = std::get_if<ServerMessage>(&event);
    if (message == nullptr) return;
    if (const auto* assign = std::get_if<Assign>(message)) {
      join_.set_phase(Join::PHASE_RUNNING);
      *join_.mutable_current() = assign->assignment();
      if (++in_round % all_nodes == 0) {
        printf("round %d\n", static_cast<int>(join_.current().round()));
        fflush(stdout);
      }
    }
    if (const auto* stop = std::get_if<StopRound>(message)) {
      join_.set_phase(Join::PHASE_IDLE);
      client_->Send(NewReady(stop->round(), 40'000, join_.store_secret()));
    }
  }

  Mutex mutex_;
  Join join_ ABSL_GUARDED_BY(mutex_) = NewJoin();
  std::unique_ptr<Client> client_;  // last: it calls
};

void Obey(std::istream& commands, const std::vector<std::unique_ptr<Node>>& nodes) {
  for (std::string line; std::getline(commands, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "progress") {
      int64_t step = 0;
      std::string phase;
      double loss = 0;
      words >> step >> phase >> loss;
      for (const auto& node : nodes) node->Report(step, phase, loss);
    } else if (verb == "fail") {
      size_t number = 0;
      std::string message;
      words >> number >> std::ws;
      std::getline(words, message);
      nodes.at(number)->Fail(message);
    } else if (verb == "hang" || verb == "continue" || verb == "straggler") {
      std::string text;
      std::getline(words >> std::ws, text);
      nodes.at(0)->ReportHang(text, verb == "hang"       ? Hang::KIND_HUNG
                                    : verb == "continue" ? Hang::KIND_CONTINUED
                                                         : Hang::KIND_STRAGGLER);
    } else if (verb == "finish") {
      for (const auto& node : nodes) node->Finish();
    }
  }
}

}  // namespace
}  // namespace ddprun::rendezvous

int main(int argc, char** argv) {
  using namespace ddprun::rendezvous;
  if (argc != 5) return 2;
  ddprun::RaiseFileLimit();
  const auto server = ddprun::ParseEndpoint(argv[1]);
  if (!server.ok()) return 2;
  all_nodes = atoi(argv[3]);
  std::vector<std::unique_ptr<Node>> nodes;
  for (int i = 0; i < all_nodes; ++i) nodes.push_back(std::make_unique<Node>(*server, argv[2], i, atoi(argv[4])));
  Obey(std::cin, nodes);
}

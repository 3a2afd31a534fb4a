#include "tests/worker_runtime/elastic/elastic_job.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::testing {

using worker_contract::LinkReForm;
using worker_contract::LinkSuspend;
using worker_contract::LinkSuspended;

ElasticJob::ElasticJob(int n, std::vector<std::string> arguments)
    : arguments_(std::move(arguments)), store_(std::make_unique<launcher::StoreOnLoop>()) {
  for (int rank = 0; rank < n; ++rank) members_.push_back(Start(rank, n));
}

ElasticJob::Member ElasticJob::Start(int rank, int n) {
  std::vector<std::string> command = {"tests/worker_runtime/elastic/elastic_program"};
  command.insert(command.end(), arguments_.begin(), arguments_.end());
  Member member{.launcher = std::make_unique<FakeLauncher>()};
  member.process = std::make_unique<Process>(
      command, std::map<std::string, std::string>{{"RANK", absl::StrCat(rank)},
                                                  {"LOCAL_RANK", absl::StrCat(rank)},
                                                  {"WORLD_SIZE", absl::StrCat(n)},
                                                  {"LOCAL_WORLD_SIZE", absl::StrCat(n)},
                                                  {"MASTER_ADDR", "127.0.0.1"},
                                                  {"MASTER_PORT", absl::StrCat(store_->port())},
                                                  {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                  {"TORCHELASTIC_RUN_ID", "job"},
                                                  {"DDPRUN_ROUND", absl::StrCat(round_)},
                                                  {"DDPRUN_WORKER_LINK", member.launcher->address()},
                                                  {"OMP_NUM_THREADS", "1"}});
  return member;
}

void ElasticJob::Kill(int rank) {
  members_[rank].process->Signal(SIGKILL);
  EXPECT_EQ(members_[rank].process->Wait(), 128 + SIGKILL);
  members_[rank].dead = true;
}

void ElasticJob::KillHolding(int rank, const std::string& place) {
  EXPECT_TRUE(members_[rank].process->WaitForOut("holding " + place)) << Err();
  Kill(rank);
}

void ElasticJob::Suspend(bool at_step_end) {
  held_.clear();
  const LinkSuspend suspend{round_, at_step_end, "a test ends the round", std::nullopt};
  for (Member& member : members_) {
    if (!member.dead) member.launcher->SendToLauncher(suspend);
  }
  for (int rank = 0; rank < size(); ++rank) {
    if (members_[rank].dead) continue;
    const std::optional<LinkSuspended> said = members_[rank].launcher->Await<LinkSuspended>();
    EXPECT_TRUE(said.has_value()) << "rank " << rank << ": " << members_[rank].process->Err();
    if (!said.has_value()) continue;
    EXPECT_EQ(said->round, round_);
    held_[rank] = said->step;
  }
}

void ElasticJob::Begin(int n) {
  ++round_;
  store_ = std::make_unique<launcher::StoreOnLoop>();
  std::vector<Member> members(n);
  std::vector<Member> left_over;
  for (int rank = 0; rank < size(); ++rank) {
    if (members_[rank].dead) {
      gone_.push_back(std::move(members_[rank]));
    } else if (rank < n) {
      members[rank] = std::move(members_[rank]);
    } else {
      left_over.push_back(std::move(members_[rank]));
    }
  }
  for (Member& survivor : left_over) {
    for (Member& place : members) {
      if (place.process != nullptr) continue;
      place = std::move(survivor);
      break;
    }
  }
  members_ = std::move(members);
  for (int rank = 0; rank < n; ++rank) {
    if (members_[rank].process == nullptr) {
      members_[rank] = Start(rank, n);
      continue;
    }
    members_[rank].launcher->SendToLauncher(LinkReForm{{.round = round_,
                                                        .rank = rank,
                                                        .world_size = n,
                                                        .local_world_size = n,
                                                        .master_addr = "127.0.0.1",
                                                        .master_port = store_->port()},
                                                       /*role_rank=*/rank,
                                                       /*role_world_size=*/n});
  }
}

int ElasticJob::Wait() {
  for (Member& member : members_) {
    if (const int code = member.process->Wait(); code != 0) return code;
  }
  return 0;
}

std::string ElasticJob::Out() {
  std::string all;
  for (std::vector<Member>* const some : {&gone_, &members_}) {
    for (Member& member : *some) absl::StrAppend(&all, member.process->Out());
  }
  return all;
}

std::string ElasticJob::Err() {
  std::string all;
  for (Member& member : members_) absl::StrAppend(&all, member.process->Err());
  return all;
}

}  // namespace ddprun::testing

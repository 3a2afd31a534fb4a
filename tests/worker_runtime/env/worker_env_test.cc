#include "worker_runtime/env/worker_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

absl::StatusOr<WorkerEnv> Read(const Variables& variables) {
  return WorkerEnv::FromVariables([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

Variables With(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

const Variables kPlain = {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node-a"}, {"MASTER_PORT", "29500"}};

const Variables kLaunched = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"GROUP_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "node-a"},
                             {"MASTER_PORT", "40000"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"TORCHELASTIC_MAX_RESTARTS", "3"},
                             {"TORCHELASTIC_RUN_ID", "job"},
                             {"TORCHELASTIC_ERROR_FILE", "/tmp/error.json"},
                             {"DDPRUN_ROUND", "18446744073709551615"}};

TEST(WorkerEnv, FromVariables_NothingSet_IsRankZeroOfOne) {
  const WorkerEnv env = *Read({});
  EXPECT_FALSE(env.launched());
  EXPECT_EQ(env.rank, 0);
  EXPECT_EQ(env.world_size, 1);
  EXPECT_FALSE(env.agent_store);
  EXPECT_EQ(*&Read({{"RANK", ""}, {"WORLD_SIZE", ""}})->world_size, 1);
}

TEST(WorkerEnv, FromVariables_Launched_ReadsAll) {
  const WorkerEnv env = *Read(kLaunched);
  EXPECT_TRUE(env.launched());
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.world_size, 8);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 4);
  EXPECT_EQ(env.group_rank, 1);
  EXPECT_EQ(env.group_world_size, 2);
  EXPECT_EQ(env.master_addr, "node-a");
  EXPECT_EQ(env.master_port, 40000);
  EXPECT_TRUE(env.agent_store);
  EXPECT_EQ(env.restart_count, 2);
  EXPECT_EQ(env.max_restarts, 3);
  EXPECT_EQ(env.run_id, "job");
  EXPECT_EQ(env.error_file, "/tmp/error.json");
  EXPECT_EQ(env.round, 18446744073709551615u);
}

TEST(WorkerEnv, FromVariables_NoNodeVariables_IsOneNode) {
  const WorkerEnv env = *Read(kPlain);
  EXPECT_EQ(env.local_rank, 3);
  EXPECT_EQ(env.local_world_size, 4);
  EXPECT_EQ(env.group_world_size, 1);
}

TEST(WorkerEnv, FromVariables_WorldOfOne_NeedsNoAddress) {
  EXPECT_TRUE(Read({{"RANK", "0"}, {"WORLD_SIZE", "1"}})->launched());
}

TEST(WorkerEnv, FromVariables_BadVariable_ErrorNamesItsValue) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"RANK", "0"}}, "WORLD_SIZE is not set, but RANK=0 is"},
      {{{"WORLD_SIZE", "4"}}, "RANK is not set, but WORLD_SIZE=4 is"},
      {With(kPlain, {{"RANK", "x"}}), "RANK=x: must be an integer from 0 to 3"},
      {With(kPlain, {{"RANK", "4"}}), "RANK=4: must be an integer from 0 to 3"},
      {With(kPlain, {{"RANK", "-1"}}), "RANK=-1"},
      {With(kPlain, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE=0: must be an integer of at least 1"},
      {With(kPlain, {{"WORLD_SIZE", "99999999999"}}), "WORLD_SIZE=99999999999"},
      {With(kPlain, {{"MASTER_ADDR", ""}}), "MASTER_ADDR is not set; the 4 workers"},
      {With(kPlain, {{"MASTER_PORT", ""}}), "MASTER_PORT is not set"},
      {With(kPlain, {{"MASTER_PORT", "0"}}), "MASTER_PORT=0: must be an integer from 1 to 65535"},
      {With(kPlain, {{"MASTER_PORT", "65536"}}), "MASTER_PORT=65536"},
      {With(kLaunched, {{"LOCAL_RANK", ""}}), "LOCAL_RANK is not set; it is required because GROUP_WORLD_SIZE=2"},
      {With(kLaunched, {{"LOCAL_WORLD_SIZE", ""}}), "LOCAL_WORLD_SIZE is not set"},
      {With(kLaunched, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK=4: must be an integer from 0 to 3"},
      {With(kLaunched, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE=9"},
      {With(kLaunched, {{"GROUP_RANK", "2"}}), "GROUP_RANK=2: must be an integer from 0 to 1"},
      {With(kLaunched, {{"GROUP_WORLD_SIZE", "9"}}), "GROUP_WORLD_SIZE=9"},
      {With(kLaunched, {{"TORCHELASTIC_USE_AGENT_STORE", "maybe"}}),
       "TORCHELASTIC_USE_AGENT_STORE=maybe: must be True"},
      {With(kLaunched, {{"TORCHELASTIC_RESTART_COUNT", "-1"}}), "TORCHELASTIC_RESTART_COUNT=-1"},
      {With(kLaunched, {{"DDPRUN_ROUND", "new"}}), "DDPRUN_ROUND=new"},
  };
  for (const auto& [variables, text] : cases) {
    const absl::Status status = Read(variables).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

}  // namespace
}  // namespace ddprun

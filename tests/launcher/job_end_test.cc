#include "launcher/job_end.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "proto/time.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

using ddprun::testing::ReadFile;
using ddprun::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

JobEnd FailedJob() {
  JobEnd end;
  end.job_id = "exp7";
  end.settings = rendezvous::DefaultSettings();
  end.begin = absl::FromUnixSeconds(1'700'000'000);
  end.end = end.begin + absl::Seconds(90);
  rendezvous::WorkerFailure failure = rendezvous::NewFailure();
  failure.set_host("node2");
  failure.set_rank(11);
  failure.set_exit_code(1);
  *failure.mutable_at() = FromTime(end.begin + absl::Seconds(89));
  failure.set_message("RuntimeError: planted and password=hunter2");
  failure.set_traceback("Traceback:\n  login(\"hf_abcdefghijklmnopqrstuvwxyz\")\xff");
  end.summary.set_entrypoint("train.py");
  *end.summary.mutable_verdict() = rendezvous::NewVerdict(false, "rank 11 exited with 1", failure, 1);
  *end.summary.add_others() = failure;
  end.summary.set_hint("ask");
  end.last_round.emplace();
  end.last_round->set_round(4);
  end.last_round->set_restart_count(3);
  end.last_round->set_group_world_size(2);
  end.last_round->set_world_size(16);
  end.hang = rendezvous::NewHang(rendezvous::Hang::KIND_HUNG, 4, "rank 3 hangs\nstack", {3});
  return end;
}

TEST(JobEndJson, FailedJob_HasTheNamesOfShow) {
  const std::string text = JobEndJson(FailedJob(), SecretMask({"API_KEY=planted"}));
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["job_id"], "exp7");
  EXPECT_EQ(json["entrypoint"], "train.py");
  EXPECT_EQ(json["state"], "failed");
  EXPECT_EQ(json["reason"], "rank 11 exited with 1");
  EXPECT_EQ(json["verdict"]["succeeded"], false);
  EXPECT_EQ(json["verdict"]["exit_code"], 1);
  EXPECT_EQ(json["verdict"]["first_cause"]["host"], "node2");
  EXPECT_EQ(json["verdict"]["first_cause"]["rank"], 11);
  EXPECT_EQ(json["verdict"]["first_cause"]["at"], "2023-11-14T22:14:49.000000Z");
  EXPECT_EQ(json["others"].size(), 1u);
  EXPECT_EQ(json["hang"]["ranks"], nlohmann::json::array({3}));
  EXPECT_EQ(json["node_count"], 2);
  EXPECT_EQ(json["world_size"], 16);
  EXPECT_EQ(json["round"], 4);
  EXPECT_EQ(json["restart_count"], 3);
  EXPECT_EQ(json["settings"]["max_restarts"], 0);
  EXPECT_EQ(json["begin"], "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(json["end"], "2023-11-14T22:14:50.000000Z");
  EXPECT_EQ(json["age"], 90.0);
  EXPECT_FALSE(json.contains("nodes"));
}

TEST(JobEndJson, SecretsInOutput_AreMasked) {
  const std::string text = JobEndJson(FailedJob(), SecretMask({"API_KEY=planted"}));
  EXPECT_THAT(text, Not(HasSubstr("hunter2")));
  EXPECT_THAT(text, Not(HasSubstr("abcdefghij")));
  EXPECT_THAT(text, Not(HasSubstr("planted")));
}

TEST(JobEndJson, JobWithoutRounds_HasNoHangAndNoCause) {
  JobEnd end;
  *end.summary.mutable_verdict() = rendezvous::NewVerdict(true, "done", std::nullopt, 0);
  const nlohmann::json json = nlohmann::json::parse(JobEndJson(end, SecretMask({})));
  EXPECT_EQ(json["state"], "finished");
  EXPECT_EQ(json["world_size"], 0);
  EXPECT_FALSE(json.contains("hang"));
  EXPECT_FALSE(json["verdict"].contains("first_cause"));
}

TEST(ResultFile, UnusablePlaces_AreRefusedInOneLine) {
  const TempDir dir;
  std::ofstream(dir.File("file")) << "x";
  const std::pair<std::string, std::string> cases[] = {
      {dir.File("none/r.json"), "No such file"},
      {dir.File("file/r.json"), "is not a folder"},
      {dir.path(), "not a regular file"},
      {"/dev/null", "not a regular file"},
  };
  for (const auto& [path, why] : cases) {
    const absl::Status status = CheckResultFile(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("--result=" + path), HasSubstr(why)));
  }
  EXPECT_TRUE(CheckResultFile(dir.File("r.json")).ok());
  EXPECT_TRUE(CheckResultFile("r.json").ok());
}

class EndCommandTest : public ::testing::Test {
 protected:
  // Runs the command to its end and returns its result.
  absl::Status Run(const std::string& command, const std::string& input = "", absl::Duration limit = absl::Minutes(2),
                   std::function<void(EndCommand*)> meanwhile = nullptr) {
    auto loop = EventLoop::Create();
    if (!loop.ok()) return loop.status();
    auto started = EndCommand::Start(
        loop->get(), command, input, [&] { (*loop)->Quit(); }, limit);
    if (!started.ok()) return started.status();
    if (meanwhile) (*loop)->Post([&] { meanwhile(started->get()); });
    (*loop)->Run();
    return (*started)->result();
  }

  const TempDir dir_;
};

TEST_F(EndCommandTest, Input_IsReadWhole) {
  const std::string input(200'000, 'x');
  EXPECT_TRUE(Run(absl::StrCat("cat >", dir_.File("in")), input).ok());
  EXPECT_EQ(ReadFile(dir_.File("in")), input);
  EXPECT_TRUE(Run("true", input).ok()) << "it reads nothing";
}

TEST_F(EndCommandTest, Failures_AreExplained) {
  EXPECT_EQ(Run("exit 3").message(), "the command exited with 3");
  EXPECT_EQ(Run("exec 2>/dev/null; /no/such/program").message(), "the command exited with 127");
  EXPECT_EQ(Run("kill -TERM $$").message(), "the command was killed by SIGTERM");
}

TEST_F(EndCommandTest, Limit_EndsIt) {
  EXPECT_EQ(Run("sleep 1000", "", absl::ZeroDuration()).message(), "the command was killed: it ran for 0");
}

TEST_F(EndCommandTest, Kill_EndsItsWholeProcessGroup) {
  const std::string fifo = dir_.File("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const UniqueFd reader(open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  char pid[32] = {};
  const std::string command = absl::StrCat("sleep 1000 & echo $! >", fifo, "; wait");
  const absl::Status status = Run(command, "", absl::InfiniteDuration(), [&](EndCommand* running) {
    EXPECT_GT(read(reader.get(), pid, sizeof(pid) - 1), 0);
    running->Kill("received SIGINT");
    running->Kill("received SIGTERM");
  });
  EXPECT_EQ(status.message(), "the command was killed: received SIGINT");
  EXPECT_TRUE(ddprun::testing::Eventually([&] { return !ddprun::testing::Alive(atoi(pid)); }));
}

}  // namespace
}  // namespace ddprun::launcher

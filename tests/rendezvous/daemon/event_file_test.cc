#include "rendezvous/daemon/event_file.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "rendezvous/daemon/event_line.h"
#include "tests/testing/process.h"
#include "tests/testing/text_proto.h"

namespace ddprun::rendezvous {
namespace {

using testing::Eventually;
using testing::ReadFile;
using testing::TempDir;

Event JobEvent(Event::Kind kind) {
  Event event;
  event.kind = kind;
  event.job_id = "job";
  return event;
}

int Lines(const std::string& path) {
  int lines = 0;
  for (const char c : ReadFile(path)) lines += c == '\n' ? 1 : 0;
  return lines;
}

TEST(EventLine, Failure_HasOpenTelemetrysNames) {
  LoggedEvent logged;
  logged.number = 7;
  logged.event = JobEvent(Event::Kind::kWorkerFailed);
  logged.event.time = absl::FromUnixMicros(1'700'000'000'250'000);
  logged.event.round = 3;
  logged.event.host = "node-a";
  logged.event.node_id = "secret";
  logged.event.detail = "rank 3 \"died\"\n\xff";
  logged.event.failure =
      TextProto("host: 'node-a' rank: 3 local_rank: 1 pid: 77 signal: 9 message: 'boom'", NewFailure());
  const std::string line = EventLine(logged);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(line.find("secret"), std::string::npos);
  const nlohmann::json value = nlohmann::json::parse(line);
  EXPECT_EQ(value["time"], "2023-11-14T22:13:20.250000Z");
  EXPECT_EQ(value["event.name"], "worker.failed");
  EXPECT_EQ(value["severity"], "WARN");
  EXPECT_EQ(value["service.name"], "rendezvousd");
  EXPECT_EQ(value["host.name"], "node-a");
  EXPECT_EQ(value["process.pid"], 77);
  EXPECT_EQ(value["error.type"], "SIGKILL");
  EXPECT_EQ(value["exception.message"], "boom");
  EXPECT_EQ(value["ddprun.job.id"], "job");
  EXPECT_EQ(value["ddprun.event.number"], 7);
  EXPECT_EQ(value["ddprun.round"], 3);
  EXPECT_FALSE(value.contains("ddprun.actor"));
}

TEST(EventLine, UnsetValues_AreOmitted) {
  LoggedEvent logged{.number = 8, .event = JobEvent(Event::Kind::kNodeLost)};
  logged.event.failure = TextProto("host: 'node-a' message: 'lost'", NewFailure());
  const nlohmann::json value = nlohmann::json::parse(EventLine(logged));
  EXPECT_EQ(value["error.type"], "node_lost");
  EXPECT_EQ(value["ddprun.failure.host"], "node-a");
  EXPECT_EQ(value["ddprun.restart_count"], 0);
  for (const char* unset : {"ddprun.round", "ddprun.nodes", "ddprun.min_nodes", "ddprun.rank", "ddprun.local_rank",
                            "ddprun.step", "process.pid", "process.exit.code", "exception.stacktrace", "host.name"}) {
    EXPECT_FALSE(value.contains(unset)) << unset;
  }
  logged.event.failure = TextProto("rank: 0 local_rank: 0 step: 0", NewFailure());
  for (const char* zero : {"ddprun.rank", "ddprun.local_rank", "ddprun.step"}) {
    EXPECT_EQ(nlohmann::json::parse(EventLine(logged))[zero], 0) << zero;
  }
}

TEST(EventFile, MovedAndReopened_NothingIsLost) {
  const TempDir folder;
  const std::string path = folder.File("events"), old = folder.File("events.1");
  EventLog log;
  log.Append(JobEvent(Event::Kind::kJobCreated));
  {
    auto file = EventFile::Open(path, &log);
    log.Append(JobEvent(Event::Kind::kRoundAssigned));
    EXPECT_TRUE(Eventually([&] { return Lines(path) == 2; }));
    ASSERT_EQ(rename(path.c_str(), old.c_str()), 0);
    (*file)->Reopen();
    EXPECT_TRUE(Eventually([&] { return access(path.c_str(), F_OK) == 0; }));
    log.Append(JobEvent(Event::Kind::kJobFinished));
    EXPECT_EQ((*file)->lost(), 0u);
  }  // the destructor writes pending events
  EXPECT_EQ(Lines(old), 2);
  EXPECT_EQ(Lines(path), 1);
  EXPECT_NE(ReadFile(path).find("job.finished"), std::string::npos);
}

TEST(EventFile, EventsOfAServerBefore_ThoseThatItHasNotWrittenAreWritten) {
  const TempDir folder;
  const std::string path = folder.File("events");
  const auto open_with = [&](std::vector<Event> restored, uint64_t earlier_servers, std::vector<Event> events) {
    EventLog log;
    log.Restore(std::move(restored), earlier_servers);
    auto file = EventFile::Open(path, &log);
    for (Event& event : events) log.Append(std::move(event));
    EXPECT_EQ((*file)->lost(), 0u);
  };
  const auto at = [](int second, Event::Kind kind) {
    Event event = JobEvent(kind);
    event.time = absl::FromUnixSeconds(second);
    event.detail = std::string(second, 'x');
    return event;
  };
  const Event created = at(1, Event::Kind::kJobCreated), assigned = at(2, Event::Kind::kRoundAssigned);
  const Event stopped = at(3, Event::Kind::kRoundStopped), again = at(3, Event::Kind::kRoundAssigned);
  open_with({created}, 0, {assigned});
  EXPECT_EQ(Lines(path), 1) << "a new file begins with what is new";
  // The second server wrote one of the restored events, and was killed before it wrote the others.
  Event cut = assigned;
  cut.detail = "...";
  open_with({created, cut, stopped, again}, 1, {});
  EXPECT_EQ(Lines(path), 3);
  open_with({created, cut, stopped, again}, 2, {at(4, Event::Kind::kJobFinished)});
  EXPECT_EQ(Lines(path), 4);
  std::vector<uint64_t> numbers;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    numbers.push_back(nlohmann::json::parse(line)["ddprun.event.number"].get<uint64_t>());
  }
  EXPECT_EQ(numbers, (std::vector<uint64_t>{2, 1'000'000'003, 1'000'000'004, 2'000'000'005}));
}

TEST(EventFile, DiskIsFull_LinesAreCounted) {
  EventLog log;
  auto file = EventFile::Open("/dev/full", &log);
  for (int i = 0; i < 3; ++i) log.Append(JobEvent(Event::Kind::kJobCreated));
  EXPECT_TRUE(Eventually([&] { return (*file)->lost() == 3; })) << (*file)->lost();
}

TEST(EventFile, DiskFills_LinesStayWholeAndTheRestIsCounted) {
  const TempDir folder;
  const std::string path = folder.File("events");
  EventLog log;
  auto file = EventFile::Open(path, &log);
  // The kernel writes up to the limit and then fails.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit full = before;
  full.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &full);
  for (int i = 0; i < 100; ++i) log.Append(JobEvent(Event::Kind::kJobCreated));
  EXPECT_TRUE(Eventually([&] { return Lines(path) + (*file)->lost() == 100; })) << (*file)->lost();
  setrlimit(RLIMIT_FSIZE, &before);
  const int written = Lines(path);
  EXPECT_GT(written, 0);
  EXPECT_EQ(ReadFile(path).back(), '\n');
  log.Append(JobEvent(Event::Kind::kJobFinished));
  EXPECT_TRUE(Eventually([&] { return Lines(path) == written + 1; }));
}

TEST(EventFile, CantBeOpened_SaysWhy) {
  EventLog log;
  const auto file = EventFile::Open("/nonexistent/events", &log);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().message(), "can't open --event-log /nonexistent/events: No such file or directory");
}

}  // namespace
}  // namespace ddprun::rendezvous

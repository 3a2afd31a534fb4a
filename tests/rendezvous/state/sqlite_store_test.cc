#include "rendezvous/state/sqlite_store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rendezvous/core/ended_jobs.h"
#include "rendezvous/state/sqlite_db.h"
#include "tests/rendezvous/core/sample_records.h"
#include "tests/rendezvous/state/collected.h"

namespace ddprun::rendezvous {
namespace {

class SqliteStoreTest : public testing::Test {
 protected:
  SqliteStoreTest() {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    dir_ = absl::StrCat(getenv("TEST_TMPDIR"), "/", name);
    std::filesystem::remove_all(dir_);
  }
  std::unique_ptr<SqliteStore> Open() {
    absl::StatusOr<std::unique_ptr<SqliteStore>> store = SqliteStore::Open(dir_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  void KeepOne(SqliteStore* store, const JobRecord& record) {
    Save(store, record);
    safe_.Await(++kept_);
  }
  void Save(SqliteStore* store, const JobRecord& record) {
    store->SaveRecord(std::make_shared<const JobRecord>(record), "something happened", [this] { safe_.Add(true); });
  }
  // Opens the store again and returns its records by job id, with the ages that were persisted.
  std::map<std::string, JobRecord> Reopened() {
    std::map<std::string, JobRecord> records;
    for (JobRecord& record : Open()->TakeSaved().jobs) {
      const absl::Duration passed = ToDuration(record.age()) - absl::Seconds(90);
      EXPECT_GE(passed, absl::ZeroDuration());
      const JobRecord written = LiveRecord("", 1);
      JobRecord kept = written;
      AddAge(passed, &kept);
      EXPECT_EQ(record.restarts(), kept.restarts());
      EXPECT_EQ(ToDuration(record.since_end()), record.has_verdict() ? passed : absl::ZeroDuration());
      record.clear_since_end();
      *record.mutable_age() = written.age();
      *record.mutable_restarts() = written.restarts();
      *record.mutable_goodput() = written.goodput();
      *record.mutable_cooldowns() = written.cooldowns();
      records[record.job_id()] = record;
    }
    return records;
  }
  std::string file() const { return absl::StrCat(dir_, "/state.db"); }
  int CountSetAside() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
      const std::string name = entry.path().filename();
      if (name.find("state.db.damaged-") == 0 && name.find("-wal") == std::string::npos) ++count;
    }
    return count;
  }

  std::string dir_;
  Collected<bool> safe_;            // one for each acknowledged record
  Collected<std::string> reports_;  // errors of the store
  int kept_ = 0;
};

TEST_F(SqliteStoreTest, Load_SeveralRecordsOfAJob_ReturnsNewest) {
  {
    const std::unique_ptr<SqliteStore> store = Open();
    EXPECT_TRUE(store->TakeSaved().jobs.empty());
    KeepOne(store.get(), LiveRecord("a", 1));
    KeepOne(store.get(), LiveRecord("b", 1));
    KeepOne(store.get(), LiveRecord("a", 2));
    KeepOne(store.get(), EndedRecord("b", 7));
  }
  std::map<std::string, JobRecord> records = Reopened();
  EXPECT_EQ(records.size(), 2u);
  EXPECT_EQ(records["a"], LiveRecord("a", 2));
  EXPECT_EQ(records["b"], EndedRecord("b", 7));
  {
    const std::unique_ptr<SqliteStore> store = Open();
    KeepOne(store.get(), LiveRecord("b", 8));
  }
  EXPECT_EQ(Reopened()["b"], LiveRecord("b", 8)) << "the id was used again";
}

// A node without a record from which no server has heard for this long has stopped its workers (protocol 4.5).
TEST_F(SqliteStoreTest, Load_SeveralServers_ReturnsLongestLife) {
  {
    const std::unique_ptr<SqliteStore> store = Open();
    EXPECT_EQ(store->TakeSaved().longest_life, absl::ZeroDuration());
    const SteadyTime opened = SteadyNow();
    while (SteadyNow() < opened + absl::Milliseconds(20)) KeepOne(store.get(), LiveRecord("a", 1));
    KeepOne(store.get(), LiveRecord("a", 1));
  }
  absl::Duration longest;
  {
    const std::unique_ptr<SqliteStore> store = Open();
    longest = store->TakeSaved().longest_life;
    EXPECT_GE(longest, absl::Milliseconds(20));
    KeepOne(store.get(), LiveRecord("a", 2));
  }
  EXPECT_GE(Open()->TakeSaved().longest_life, longest) << "a shorter life changes nothing";
}

TEST_F(SqliteStoreTest, Load_SeveralServers_CountsThem) {
  EXPECT_EQ(Open()->TakeSaved().earlier_servers, 0u);
  KeepOne(Open().get(), LiveRecord("a", 1));
  EXPECT_EQ(Open()->TakeSaved().earlier_servers, 2u);
}

TEST_F(SqliteStoreTest, EndedJobs_ComeBackInOrderAndAreBounded) {
  constexpr int kEnded = EndedJobs::kMaxJobs + 5;
  {
    const std::unique_ptr<SqliteStore> store = Open();
    for (int i = 0; i < kEnded; ++i) {
      Save(store.get(), EndedRecord(absl::StrCat("job", i), 10000 - i));
      if (i % 100 == 0) safe_.Await(i + 1);
    }
    safe_.Await(kEnded);
  }
  const SavedState saved = Open()->TakeSaved();
  ASSERT_EQ(saved.jobs.size(), size_t{EndedJobs::kMaxJobs});
  EXPECT_EQ(saved.jobs.back().job_id(), absl::StrCat("job", kEnded - 1));
  EXPECT_EQ(saved.forgotten_round, 10001u) << "the highest round of those that are forgotten";
}

TEST_F(SqliteStoreTest, ASecondProcess_IsRefused) {
  const std::unique_ptr<SqliteStore> store = Open();
  const absl::Status second = SqliteStore::Open(dir_).status();
  EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
  EXPECT_NE(second.message().find(dir_), absl::string_view::npos);
}

TEST_F(SqliteStoreTest, AFolderThatCannotBeMade_IsAnError) {
  dir_ = "/proc/no/such";
  EXPECT_TRUE(absl::IsUnavailable(SqliteStore::Open(dir_).status()));
}

TEST_F(SqliteStoreTest, ADamagedFile_IsSetAside) {
  for (const std::string& damage : {std::string(5000, 'x'), std::string("SQLite format 3\0garbage", 23)}) {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    std::ofstream(file()) << damage;
    const std::unique_ptr<SqliteStore> store = Open();
    ASSERT_NE(store, nullptr);
    EXPECT_TRUE(store->TakeSaved().jobs.empty());
    EXPECT_EQ(CountSetAside(), 1);
    KeepOne(store.get(), LiveRecord("a", 1));
  }
}

TEST_F(SqliteStoreTest, APageInTheMiddleIsDamaged_TheFileIsSetAside) {
  {
    const std::unique_ptr<SqliteStore> store = Open();
    for (int i = 0; i < 200; ++i) KeepOne(store.get(), LiveRecord(absl::StrCat("job", i), 1));
  }
  std::fstream stream(file(), std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(0, std::ios::end);
  const std::streamoff size = stream.tellp();
  ASSERT_GT(size, 5 * 4096);
  stream.seekp(size / 2 / 4096 * 4096);
  stream << std::string(4096, '\xff');
  stream.close();
  EXPECT_TRUE(Reopened().empty());
  EXPECT_EQ(CountSetAside(), 1);
}

// This version rejects the port 70000; a newer version might write such a record.
TEST_F(SqliteStoreTest, ARecordThatCannotBeRead_IsSetAsideAlone) {
  JobRecord live = LiveRecord("odd", 5), ended = EndedRecord("old", 5);
  live.mutable_round()->set_master_port(70'000);
  ended.mutable_round()->set_master_port(70'000);
  {
    const std::unique_ptr<SqliteStore> store = Open();
    const SteadyTime opened = SteadyNow();
    while (SteadyNow() < opened + absl::Milliseconds(20)) KeepOne(store.get(), LiveRecord("a", 1));
    for (const JobRecord& record : {LiveRecord("a", 2), live, ended, EndedRecord("b", 3)}) KeepOne(store.get(), record);
  }
  {
    const std::unique_ptr<SqliteStore> store = Open();
    const SavedState saved = store->TakeSaved();
    ASSERT_EQ(saved.jobs.size(), 2u);
    EXPECT_EQ(saved.jobs[0].job_id(), "b");
    EXPECT_EQ(saved.jobs[1].job_id(), "a");
    EXPECT_EQ(saved.longest_life, absl::ZeroDuration()) << "jobs without a record may have one that was set aside";
    KeepOne(store.get(), LiveRecord("odd", 6));
  }
  EXPECT_EQ(Reopened().size(), 3u);
  EXPECT_EQ(CountSetAside(), 0);
  const auto db = SqliteDb::Open(file());
  ASSERT_TRUE(db.ok()) << db.status();
  SqliteStatement aside((*db)->get(), "SELECT COUNT(*) FROM damaged");
  ASSERT_TRUE(aside.Step());
  EXPECT_EQ(aside.Number(0), 2);
}

// A log that was cut in the middle of its last transaction is restored up to the preceding one.
TEST_F(SqliteStoreTest, ATornLog_LosesOnlyWhatWasNotSafe) {
  const std::string copy = dir_ + "/copy";
  {
    const std::unique_ptr<SqliteStore> store = Open();
    KeepOne(store.get(), LiveRecord("a", 1));
    KeepOne(store.get(), LiveRecord("a", 2));
    std::filesystem::create_directories(copy);
    std::filesystem::copy_file(file(), copy + "/state.db");
    std::filesystem::copy_file(file() + "-wal", copy + "/state.db-wal");
  }
  std::filesystem::resize_file(copy + "/state.db-wal", std::filesystem::file_size(copy + "/state.db-wal") - 100);
  dir_ = copy;
  EXPECT_EQ(Reopened()["a"], LiveRecord("a", 1));
  EXPECT_EQ(CountSetAside(), 0);
}

// A process that persists rounds 1, 2, 3 ... of four jobs, and reports acknowledged ones over a pipe, is killed at
// random moments.
TEST_F(SqliteStoreTest, KilledAtAnyMoment_WhatWasSafeIsThere) {
  std::mt19937 random(20261122);
  std::map<std::string, uint64_t> safe;
  for (int kill_number = 0; kill_number < 15; ++kill_number) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_ends[0]);
      const std::unique_ptr<SqliteStore> store = Open();
      std::map<std::string, uint64_t> rounds;
      Collected<bool> all;
      for (const JobRecord& record : store->TakeSaved().jobs) rounds[record.job_id()] = record.round().number();
      for (int i = 0; true; ++i) {
        const std::string job(1, static_cast<char>('a' + i % 4));
        const uint64_t round = ++rounds[job];
        store->SaveRecord(std::make_shared<const JobRecord>(LiveRecord(job, round)), "", [=, &all, fd = pipe_ends[1]] {
          char line[9] = {job[0]};
          memcpy(line + 1, &round, sizeof round);
          if (write(fd, line, sizeof line) != sizeof line) _exit(1);
          all.Add(true);
        });
        if (i % 8 == 7) all.Await(i - 3);  // limits the batches, so that there are many transactions
      }
    }
    close(pipe_ends[1]);
    // Reads some reports, kills the process, and reads the rest.
    const int until = 1 + static_cast<int>(random() % 300);
    char line[9];
    for (int read_lines = 0; read(pipe_ends[0], line, sizeof line) == sizeof line; ++read_lines) {
      memcpy(&safe[std::string(1, line[0])], line + 1, sizeof(uint64_t));
      if (read_lines == until) kill(child, SIGKILL);
    }
    close(pipe_ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    std::map<std::string, JobRecord> records = Reopened();
    for (const auto& [job, round] : safe) {
      EXPECT_GE(records[job].round().number(), round) << job << " after kill " << kill_number;
    }
    EXPECT_EQ(CountSetAside(), 0);
  }
  EXPECT_EQ(safe.size(), 4u);
}

// Simulates a disk that is full until MakeRoom: limits the size of files to the present size of `path`.
class FullDisk {
 public:
  explicit FullDisk(const std::string& path) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit full = before_;
    full.rlim_cur = std::filesystem::file_size(path);
    setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() { MakeRoom(); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  void MakeRoom() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST_F(SqliteStoreTest, WhileTheDiskIsFull_NothingIsSafe) {
  const std::unique_ptr<SqliteStore> store = Open();
  store->SetErrorHandler([this](const std::string& trouble) { reports_.Add(trouble); });
  KeepOne(store.get(), LiveRecord("a", 1));
  EXPECT_EQ(reports_.count(), 0);
  FullDisk disk(file() + "-wal");
  Save(store.get(), LiveRecord("a", 2));
  Save(store.get(), LiveRecord("b", 1));
  EXPECT_NE(reports_.Await(1)[0].find(dir_), std::string::npos);
  EXPECT_EQ(safe_.count(), 1);
  disk.MakeRoom();
  safe_.Await(3);
  EXPECT_EQ(reports_.Await(2)[1], "");
  EXPECT_EQ(reports_.count(), 2);
}

}  // namespace
}  // namespace ddprun::rendezvous

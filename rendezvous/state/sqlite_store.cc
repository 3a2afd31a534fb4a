#include "rendezvous/state/sqlite_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rendezvous/core/ended_jobs.h"

namespace ddprun::rendezvous {
namespace {

constexpr int kVersion = 1;

constexpr char kSchema[] =
    "CREATE TABLE IF NOT EXISTS jobs(job_id TEXT PRIMARY KEY, saved_at INTEGER NOT NULL, record BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS ended_jobs(id INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL UNIQUE,"
    "  saved_at INTEGER NOT NULL, highest_round INTEGER NOT NULL, nodes INTEGER NOT NULL, record BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS events(id INTEGER PRIMARY KEY, at INTEGER NOT NULL, job_id TEXT NOT NULL,"
    "  event TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS damaged(id INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL,"
    "  saved_at INTEGER NOT NULL, record BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS forgotten(id INTEGER PRIMARY KEY CHECK (id = 1), highest_round INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS servers(id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS lives(id INTEGER PRIMARY KEY CHECK (id = 1), longest_ms INTEGER NOT NULL);"
    "PRAGMA user_version = 1";

absl::Status Error(absl::string_view what, const std::string& path, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("can't ", what, " ", path, ": ", why));
}

}  // namespace

SqliteStore::SqliteStore(std::string dir)
    : dir_(std::move(dir)), queue_("the state directory " + dir_, {.longest = absl::Seconds(5)}) {}

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& dir) {
  std::unique_ptr<SqliteStore> store(new SqliteStore(dir));
  DDPRUN_RETURN_IF_ERROR(store->Lock());
  absl::Status status = store->Load();
  if (absl::IsDataLoss(status)) {
    status = store->SetAside(status);
    if (status.ok()) status = store->Load();
  }
  if (!status.ok()) return status;
  store->queue_.Start([raw = store.get()](Batch batch, SteadyTime taken) { return raw->Write(batch, taken); });
  return store;
}

SqliteStore::~SqliteStore() {
  Stop();
  db_.reset();
  if (lock_ >= 0) close(lock_);
}

absl::Status SqliteStore::Lock() {
  if (mkdir(dir_.c_str(), 0700) != 0 && errno != EEXIST)
    return Error("create the state directory", dir_, strerror(errno));
  const std::string path = absl::StrCat(dir_, "/lock");
  lock_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) return Error("open the state directory", dir_, strerror(errno));
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  if (errno != EWOULDBLOCK) return Error("lock", path, strerror(errno));
  return absl::AlreadyExistsError(
      absl::StrCat("the state directory ", dir_, " is in use by another rendezvousd; each needs its own"));
}

absl::Status SqliteStore::Load() {
  saved_ = SavedState();
  const std::string path = absl::StrCat(dir_, "/state.db");
  // Readable by the owner only; SQLite's auxiliary files inherit the mode.
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return Error("open", path, strerror(errno));
  close(fd);
  absl::StatusOr<std::unique_ptr<SqliteDb>> db = SqliteDb::Open(path);
  if (!db.ok()) {
    return absl::IsDataLoss(db.status()) ? db.status() : Error("open", path, db.status().message());
  }
  db_ = *std::move(db);
  const absl::Status status = ReadSaved();
  return absl::IsUnavailable(status) ? Error("use", path, status.message()) : status;
}

absl::Status SqliteStore::ReadSaved() {
  SqliteStatement check(db_->get(), "PRAGMA quick_check(1)");
  if (check.Step() && check.Blob(0) != "ok") return absl::DataLossError(check.Blob(0));
  if (!check.status().ok()) return check.status();
  SqliteStatement version(db_->get(), "PRAGMA user_version");
  if (version.Step() && version.Number(0) > kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the state directory ", dir_, " was written by a newer rendezvousd; upgrade, or use another one"));
  }
  DDPRUN_RETURN_IF_ERROR(db_->Execute(kSchema));
  std::map<std::string, absl::Status> damaged;  // key: job
  for (const char* sql : {"SELECT record, saved_at, job_id FROM ended_jobs ORDER BY id",
                          "SELECT record, saved_at, job_id FROM jobs ORDER BY job_id"}) {
    SqliteStatement rows(db_->get(), sql);
    while (rows.Step()) {
      absl::StatusOr<JobRecord> record = RecordFromBytes(rows.Blob(0));
      if (!record.ok()) {
        damaged[std::string(rows.Blob(2))] = record.status();
        continue;
      }
      // The wall clock suffices, because the age is not used for safety.
      AddAge(absl::Now() - absl::FromUnixMillis(rows.Number(1)), &*record);
      saved_.jobs.push_back(*std::move(record));
    }
    if (!rows.status().ok()) return rows.status();
  }
  if (!damaged.empty()) DDPRUN_RETURN_IF_ERROR(SetRecordsAside(damaged));
  SqliteStatement forgotten(db_->get(), "SELECT highest_round FROM forgotten");
  if (forgotten.Step()) saved_.forgotten_round = static_cast<uint64_t>(forgotten.Number(0));
  if (!forgotten.status().ok()) return forgotten.status();
  SqliteStatement lives(db_->get(), "SELECT longest_ms FROM lives");
  if (lives.Step()) saved_.longest_life = absl::Milliseconds(lives.Number(0));
  if (!lives.status().ok()) return lives.status();
  SqliteStatement servers(db_->get(), "SELECT count FROM servers");
  if (servers.Step()) saved_.earlier_servers = static_cast<uint64_t>(servers.Number(0));
  if (!servers.status().ok()) return servers.status();
  servers_ = static_cast<int64_t>(saved_.earlier_servers) + 1;
  if (absl::Status status = CountServer(); !status.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("can't write to ", dir_, " yet: ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::CountServer() {
  return SqliteStatement(db_->get(),
                         "INSERT INTO servers(id, count) VALUES(1, ?) "
                         "ON CONFLICT(id) DO UPDATE SET count = max(count, excluded.count)")
      .Bind(servers_)
      .Run();
}

absl::Status SqliteStore::SetRecordsAside(const std::map<std::string, absl::Status>& damaged) {
  DDPRUN_RETURN_IF_ERROR(db_->Execute("BEGIN IMMEDIATE"));
  for (const auto& [job_id, problem] : damaged) {
    for (const char* sql : {"INSERT INTO damaged(job_id, saved_at, record) "
                            "SELECT job_id, saved_at, record FROM jobs WHERE job_id = ?1 UNION ALL "
                            "SELECT job_id, saved_at, record FROM ended_jobs WHERE job_id = ?1",
                            "DELETE FROM jobs WHERE job_id = ?", "DELETE FROM ended_jobs WHERE job_id = ?"}) {
      DDPRUN_RETURN_IF_ERROR(SqliteStatement(db_->get(), sql).BindText(job_id).Run());
    }
  }
  // The records found no longer prove that no others were persisted.
  DDPRUN_RETURN_IF_ERROR(db_->Execute("DELETE FROM lives"));
  DDPRUN_RETURN_IF_ERROR(db_->Execute("COMMIT"));
  for (const auto& [job_id, problem] : damaged) {
    Log(LogLevel::kError,
        DescribeSetAside(job_id, problem, absl::StrCat("the table \"damaged\" of ", dir_, "/state.db")));
  }
  return absl::OkStatus();
}

absl::Status SqliteStore::SetAside(const absl::Status& damage) {
  db_.reset();
  const std::string path = absl::StrCat(dir_, "/state.db");
  const std::string aside = absl::StrCat(path, ".damaged-", absl::ToUnixSeconds(absl::Now()));
  for (const char* suffix : {"", "-wal", "-shm"}) {
    const std::string from = absl::StrCat(path, suffix);
    if (rename(from.c_str(), absl::StrCat(aside, suffix).c_str()) != 0 && errno != ENOENT) {
      return Error("rename the damaged file", from, strerror(errno));
    }
  }
  Log(LogLevel::kError, absl::StrCat("the state file ", path, " is damaged (", damage.message(), "); renamed to ",
                                     aside, "; jobs are rebuilt from what their launchers report"));
  return absl::OkStatus();
}

bool SqliteStore::Write(const Batch& batch, SteadyTime taken) {
  const bool written = queue_.Try([&] {
    const absl::Status status = Commit(batch, taken);
    if (!status.ok()) db_->Execute("ROLLBACK").IgnoreError();
    return status;
  });
  if (!written) return false;
  for (const RecordQueue::Item& item : batch) item.safe();
  return true;
}

absl::Status SqliteStore::Commit(const Batch& batch, SteadyTime taken) {
  DDPRUN_RETURN_IF_ERROR(db_->Execute("BEGIN IMMEDIATE"));
  const int64_t now = absl::ToUnixMillis(absl::Now());
  std::map<std::string, const JobRecord*> newest;
  SqliteStatement event(db_->get(), "INSERT INTO events(at, job_id, event) VALUES(?, ?, ?)");
  for (const RecordQueue::Item& item : batch) {
    newest[item.record->job_id()] = item.record.get();
    if (item.event.empty()) continue;
    event.Bind(now).BindText(item.record->job_id()).BindText(item.event);
    DDPRUN_RETURN_IF_ERROR(event.Run());
  }
  SqliteStatement forget(db_->get(), "DELETE FROM ended_jobs WHERE job_id = ?");
  SqliteStatement forget_live(db_->get(), "DELETE FROM jobs WHERE job_id = ?");
  SqliteStatement live(db_->get(), "INSERT INTO jobs(job_id, saved_at, record) VALUES(?, ?, ?)");
  SqliteStatement ended(db_->get(),
                        "INSERT INTO ended_jobs(job_id, saved_at, highest_round, nodes, record) VALUES(?, ?, ?, ?, ?)");
  bool any_ended = false;
  for (const auto& [job_id, record] : newest) {
    for (SqliteStatement* statement : {&forget, &forget_live}) {
      DDPRUN_RETURN_IF_ERROR(statement->BindText(job_id).Run());
    }
    const std::string bytes = ToBytes(*record);
    absl::Status status;
    if (record->has_verdict()) {
      any_ended = true;
      status = ended.BindText(job_id)
                   .Bind(now)
                   .Bind(static_cast<int64_t>(record->highest_round()))
                   .Bind(static_cast<int64_t>(record->told_size()))
                   .BindBlob(bytes)
                   .Run();
    } else {
      status = live.BindText(job_id).Bind(now).BindBlob(bytes).Run();
    }
    if (!status.ok()) return status;
  }
  if (any_ended) DDPRUN_RETURN_IF_ERROR(ForgetOldest());
  SqliteStatement life(db_->get(),
                       "INSERT INTO lives(id, longest_ms) VALUES(1, ?) "
                       "ON CONFLICT(id) DO UPDATE SET longest_ms = max(longest_ms, excluded.longest_ms)");
  DDPRUN_RETURN_IF_ERROR(life.Bind(absl::ToInt64Milliseconds(taken - opened_)).Run());
  DDPRUN_RETURN_IF_ERROR(CountServer());
  SqliteStatement bound(db_->get(), "DELETE FROM events WHERE id <= (SELECT MAX(id) FROM events) - ?");
  DDPRUN_RETURN_IF_ERROR(bound.Bind(kMaxEvents).Run());
  return db_->Execute("COMMIT");
}

absl::Status SqliteStore::ForgetOldest() {
  while (true) {
    SqliteStatement sums(db_->get(), "SELECT COUNT(*), SUM(nodes) FROM ended_jobs");
    if (!sums.Step()) return sums.status();
    const bool fits = sums.Number(0) <= int64_t{EndedJobs::kMaxJobs} && sums.Number(1) <= int64_t{EndedJobs::kMaxNodes};
    if (sums.Number(0) <= 1 || fits) return absl::OkStatus();
    SqliteStatement round(db_->get(),
                          "INSERT INTO forgotten(id, highest_round) SELECT 1, highest_round FROM ended_jobs "
                          "WHERE id = (SELECT MIN(id) FROM ended_jobs) "
                          "ON CONFLICT(id) DO UPDATE SET highest_round = max(highest_round, excluded.highest_round)");
    DDPRUN_RETURN_IF_ERROR(round.Run());
    DDPRUN_RETURN_IF_ERROR(db_->Execute("DELETE FROM ended_jobs WHERE id = (SELECT MIN(id) FROM ended_jobs)"));
  }
}

}  // namespace ddprun::rendezvous

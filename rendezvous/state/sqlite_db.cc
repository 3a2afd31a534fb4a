#include "rendezvous/state/sqlite_db.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun::rendezvous {
namespace {

absl::Status StatusOf(int code, sqlite3* db) {
  const int kind = code & 0xff;
  if (kind == SQLITE_OK || kind == SQLITE_ROW || kind == SQLITE_DONE) return absl::OkStatus();
  const std::string text = db == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(db);
  if (kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB) return absl::DataLossError(text);
  return absl::UnavailableError(text);
}

}  // namespace

SqliteStatement::SqliteStatement(sqlite3* db, absl::string_view sql) : db_(db) {
  Take(sqlite3_prepare_v2(db, sql.data(), static_cast<int>(sql.size()), &statement_, nullptr));
}

void SqliteStatement::Take(int code) {
  if (status_.ok()) status_ = StatusOf(code, db_);
}

SqliteStatement& SqliteStatement::Bind(int64_t value) {
  if (status_.ok()) Take(sqlite3_bind_int64(statement_, ++bound_, value));
  return *this;
}

SqliteStatement& SqliteStatement::BindText(absl::string_view value) {
  if (status_.ok()) {
    Take(sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT));
  }
  return *this;
}

SqliteStatement& SqliteStatement::BindBlob(absl::string_view value) {
  if (status_.ok()) {
    Take(sqlite3_bind_blob(statement_, ++bound_, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT));
  }
  return *this;
}

bool SqliteStatement::Step() {
  if (!status_.ok()) return false;
  const int code = sqlite3_step(statement_);
  Take(code);
  return code == SQLITE_ROW;
}

absl::string_view SqliteStatement::Blob(int column) const {
  const char* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  return absl::string_view(data, sqlite3_column_bytes(statement_, column));
}

absl::Status SqliteStatement::Run() {
  while (Step()) {
  }
  if (statement_ != nullptr) sqlite3_reset(statement_);
  bound_ = 0;
  return status_;
}

absl::StatusOr<std::unique_ptr<SqliteDb>> SqliteDb::Open(const std::string& path) {
  std::unique_ptr<SqliteDb> db(new SqliteDb());
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  if (const int code = sqlite3_open_v2(path.c_str(), &db->db_, flags, nullptr); code != SQLITE_OK) {
    return StatusOf(code, db->db_);
  }
  // Operators may read the file with the sqlite3 program meanwhile.
  sqlite3_busy_timeout(db->db_, 5000);
  for (const char* sql : {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"}) {
    DDPRUN_RETURN_IF_ERROR(db->Execute(sql));
  }
  return db;
}

absl::Status SqliteDb::Execute(const char* sql) {
  return StatusOf(sqlite3_exec(db_, sql, nullptr, nullptr, nullptr), db_);
}

}  // namespace ddprun::rendezvous

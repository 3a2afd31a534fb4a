#ifndef DDPRUN_RENDEZVOUS_STATE_SQLITE_DB_H_
#define DDPRUN_RENDEZVOUS_STATE_SQLITE_DB_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// A prepared statement. After the first error all calls do nothing and `status` has the error: DATA_LOSS if the file is
// damaged, else UNAVAILABLE (disk full, no permission, ...). Thread-compatible.
class SqliteStatement {
 public:
  SqliteStatement(sqlite3* db, absl::string_view sql);
  ~SqliteStatement() { sqlite3_finalize(statement_); }
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  // Bind the next parameter. The value is copied.
  SqliteStatement& Bind(int64_t value);
  SqliteStatement& BindText(absl::string_view value);
  SqliteStatement& BindBlob(absl::string_view value);

  // Advances to the next row. Returns false if there is none.
  bool Step();
  int64_t Number(int column) const { return sqlite3_column_int64(statement_, column); }
  // Valid until the next Step.
  absl::string_view Blob(int column) const;

  // For statements without rows: runs it and resets it for new values.
  absl::Status Run();
  const absl::Status& status() const { return status_; }

 private:
  void Take(int code);

  sqlite3* const db_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
  absl::Status status_;
};

// A SQLite file. Thread-compatible.
class SqliteDb {
 public:
  // Opens or creates the file, with a write-ahead log; every commit is on disk before it returns. Errors as in
  // SqliteStatement.
  static absl::StatusOr<std::unique_ptr<SqliteDb>> Open(const std::string& path);
  ~SqliteDb() { sqlite3_close(db_); }
  SqliteDb(const SqliteDb&) = delete;
  SqliteDb& operator=(const SqliteDb&) = delete;

  // Runs statements without parameters and rows.
  absl::Status Execute(const char* sql);
  sqlite3* get() const { return db_; }

 private:
  SqliteDb() = default;
  sqlite3* db_ = nullptr;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_STATE_SQLITE_DB_H_

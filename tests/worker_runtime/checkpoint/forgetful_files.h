#ifndef DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_FORGETFUL_FILES_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_FORGETFUL_FILES_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker_runtime/safetensors/file_system.h"

namespace ddprun::testing {

// The real file system, plus a model of what a disk may hold if the machine stops now: file contents up to their last
// sync, names up to the folder's last sync, and any part of the later changes. Supports one folder. The idea is from
// LevelDB's fault injection test. Thread-compatible.
class ForgetfulFiles : public FileSystem {
 public:
  // Called after every operation.
  explicit ForgetfulFiles(std::function<void()> after) : after_(std::move(after)) {}

  // Possible contents of the folder after a stop: names with contents.
  using Disk = std::map<std::string, std::string>;
  // All possible contents: any subset of the name changes since the last sync, each with unsynced contents lost, torn
  // (the second half zero), and kept.
  std::vector<Disk> PossibleDisks() const;

  absl::StatusOr<int> Create(const std::string& path) override;
  absl::Status Write(int fd, absl::string_view bytes, const std::string& path) override;
  absl::Status Sync(int fd, const std::string& path) override;
  void Close(int fd) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncFolder(const std::string& folder) override;
  absl::Status Remove(const std::string& path) override;

 private:
  struct Content {
    std::string synced;
    std::string written;
  };
  using Names = std::map<std::string, std::shared_ptr<Content>>;
  // One atomic change of names.
  using Change = std::function<void(Names&)>;

  void Apply(Change change);

  const std::function<void()> after_;
  std::map<int, std::shared_ptr<Content>> open_;
  Names names_;                  // the names that the program sees
  Names synced_names_;           // the names that are synced to the disk
  std::vector<Change> changes_;  // since then
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_FORGETFUL_FILES_H_

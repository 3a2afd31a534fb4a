#ifndef DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_HOOKED_FILES_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_HOOKED_FILES_H_

#include <functional>
#include <string>
#include <utility>

#include "worker_runtime/safetensors/file_system.h"

namespace ddprun::testing {

// The real file system with a hook before every operation, which may make it fail or end the process.
class HookedFiles : public FileSystem {
 public:
  // `operation`: "create", "write" (before each half), "sync", "rename", "sync folder" or "remove". An error replaces
  // the operation.
  using Hook = std::function<absl::Status(const std::string& operation, const std::string& path)>;

  explicit HookedFiles(Hook hook) : hook_(std::move(hook)) {}

  absl::StatusOr<int> Create(const std::string& path) override {
    if (absl::Status status = hook_("create", path); !status.ok()) return status;
    return Real().Create(path);
  }
  absl::Status Write(int fd, absl::string_view bytes, const std::string& path) override {
    // Two halves, so that a stop in between leaves a torn file.
    const size_t half = bytes.size() / 2;
    if (absl::Status status = hook_("write", path); !status.ok()) return status;
    if (absl::Status status = Real().Write(fd, bytes.substr(0, half), path); !status.ok()) return status;
    if (absl::Status status = hook_("write", path); !status.ok()) return status;
    return Real().Write(fd, bytes.substr(half), path);
  }
  absl::Status Sync(int fd, const std::string& path) override {
    if (absl::Status status = hook_("sync", path); !status.ok()) return status;
    return Real().Sync(fd, path);
  }
  void Close(int fd) override { Real().Close(fd); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (absl::Status status = hook_("rename", to); !status.ok()) return status;
    return Real().Rename(from, to);
  }
  absl::Status SyncFolder(const std::string& folder) override {
    if (absl::Status status = hook_("sync folder", folder); !status.ok()) return status;
    return Real().SyncFolder(folder);
  }
  absl::Status Remove(const std::string& path) override {
    if (absl::Status status = hook_("remove", path); !status.ok()) return status;
    return Real().Remove(path);
  }

 private:
  const Hook hook_;
};

// The real file system without syncs, which matter only if the machine stops.
class UnsyncedFiles : public HookedFiles {
 public:
  UnsyncedFiles() : HookedFiles([](const std::string&, const std::string&) { return absl::OkStatus(); }) {}

  absl::Status Sync(int, const std::string&) override { return absl::OkStatus(); }
  absl::Status SyncFolder(const std::string&) override { return absl::OkStatus(); }
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_HOOKED_FILES_H_

#ifndef DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_HOOKED_FILES_H_
#define DDPRUN_TESTS_WORKER_RUNTIME_CHECKPOINT_HOOKED_FILES_H_

#include <functional>
#include <string>
#include <utility>

#include "base/status_macros.h"
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
    DDPRUN_RETURN_IF_ERROR(hook_("create", path));
    return Real().Create(path);
  }
  absl::Status Write(int fd, absl::string_view bytes, const std::string& path) override {
    // Two halves, so that a stop in between leaves a torn file.
    const size_t half = bytes.size() / 2;
    DDPRUN_RETURN_IF_ERROR(hook_("write", path));
    DDPRUN_RETURN_IF_ERROR(Real().Write(fd, bytes.substr(0, half), path));
    DDPRUN_RETURN_IF_ERROR(hook_("write", path));
    return Real().Write(fd, bytes.substr(half), path);
  }
  absl::Status Sync(int fd, const std::string& path) override {
    DDPRUN_RETURN_IF_ERROR(hook_("sync", path));
    return Real().Sync(fd, path);
  }
  void Close(int fd) override { Real().Close(fd); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    DDPRUN_RETURN_IF_ERROR(hook_("rename", to));
    return Real().Rename(from, to);
  }
  absl::Status SyncFolder(const std::string& folder) override {
    DDPRUN_RETURN_IF_ERROR(hook_("sync folder", folder));
    return Real().SyncFolder(folder);
  }
  absl::Status Remove(const std::string& path) override {
    DDPRUN_RETURN_IF_ERROR(hook_("remove", path));
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

#include "tests/worker_runtime/checkpoint/forgetful_files.h"

#include <utility>

namespace ddprun::testing {
namespace {

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::vector<ForgetfulFiles::Disk> ForgetfulFiles::PossibleDisks() const {
  std::vector<Disk> disks;
  for (size_t choice = 0; choice < size_t{1} << changes_.size(); ++choice) {
    Names names = synced_names_;
    for (size_t i = 0; i < changes_.size(); ++i) {
      if (choice >> i & 1) changes_[i](names);
    }
    for (int unsynced = 0; unsynced < 3; ++unsynced) {
      Disk disk;
      bool differs = unsynced == 0;
      for (const auto& [name, content] : names) {
        std::string& found = disk[name];
        found = content->synced;
        const std::string lost = content->written.substr(content->synced.size());
        differs = differs || !lost.empty();
        if (unsynced == 1) found += lost.substr(0, lost.size() / 2) + std::string(lost.size() - lost.size() / 2, '\0');
        if (unsynced == 2) found += lost;
      }
      if (differs) disks.push_back(std::move(disk));
    }
  }
  return disks;
}

void ForgetfulFiles::Apply(Change change) {
  change(names_);
  changes_.push_back(std::move(change));
}

absl::StatusOr<int> ForgetfulFiles::Create(const std::string& path) {
  const absl::StatusOr<int> fd = Real().Create(path);
  if (fd.ok()) {
    auto content = std::make_shared<Content>();
    open_[*fd] = content;
    Apply([name = NameOf(path), content](Names& names) { names[name] = content; });
  }
  after_();
  return fd;
}

absl::Status ForgetfulFiles::Write(int fd, absl::string_view bytes, const std::string& path) {
  absl::Status status = Real().Write(fd, bytes, path);
  if (status.ok()) open_[fd]->written.append(bytes.data(), bytes.size());
  after_();
  return status;
}

absl::Status ForgetfulFiles::Sync(int fd, const std::string& path) {
  absl::Status status = Real().Sync(fd, path);
  if (status.ok()) open_[fd]->synced = open_[fd]->written;
  after_();
  return status;
}

void ForgetfulFiles::Close(int fd) {
  open_.erase(fd);
  Real().Close(fd);
}

absl::Status ForgetfulFiles::Rename(const std::string& from, const std::string& to) {
  absl::Status status = Real().Rename(from, to);
  if (status.ok()) {
    const std::string old_name = NameOf(from);
    const auto content = names_.at(old_name);
    Apply([old_name, new_name = NameOf(to), content](Names& names) {
      names.erase(old_name);
      names[new_name] = content;
    });
  }
  after_();
  return status;
}

absl::Status ForgetfulFiles::SyncFolder(const std::string& folder) {
  absl::Status status = Real().SyncFolder(folder);
  if (status.ok()) {
    synced_names_ = names_;
    changes_.clear();
  }
  after_();
  return status;
}

absl::Status ForgetfulFiles::Remove(const std::string& path) {
  absl::Status status = Real().Remove(path);
  if (status.ok()) Apply([name = NameOf(path)](Names& names) { names.erase(name); });
  after_();
  return status;
}

}  // namespace ddprun::testing

#include "launcher/capsule/capsule_folder.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/version.h"
#include "launcher/io/file_descriptor.h"
#include "launcher/io/log_pump.h"
#include "launcher/process/proc_files.h"
#include "launcher/process/python_environment.h"
#include "launcher/process/resolve_program.h"
#include "launcher/process/spawn_process.h"

namespace ddprun::launcher {
namespace {

namespace fs = std::filesystem;
using google::protobuf::TextFormat;

constexpr bool kDurable = false;      // many files, of which none is worth a second
constexpr char kRound[] = "-round-";  // in the name of each capsule

// Files and folders in this one, as far as they can be read.
std::vector<fs::directory_entry> Entries(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator next(folder, error); !error && next != fs::directory_iterator(); next.increment(error)) {
    entries.push_back(*next);
  }
  return entries;
}

// Capsules in this folder; a folder that vanishes is left out.
std::vector<StoredCapsule> ListCapsules(const std::string& folder) {
  std::vector<StoredCapsule> found;
  for (const fs::directory_entry& entry : Entries(folder)) {
    const std::string name = entry.path().filename();
    struct stat status = {};
    const bool is_folder = stat(entry.path().c_str(), &status) == 0 && S_ISDIR(status.st_mode);
    if (is_folder && absl::StrContains(name, kRound)) found.push_back({name, absl::TimeFromTimespec(status.st_mtim)});
  }
  return found;
}

// Paths of the files of nodes, sorted.
std::vector<std::string> NodeFiles(const std::string& folder) {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry : Entries(folder)) {
    const std::string name = entry.path().filename();
    if (absl::StartsWith(name, "node-") && absl::EndsWith(name, kNodeFileEnd)) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string CommandText(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const std::string& word) {
    const bool plain = !word.empty() && word.find_first_of(" \t\n\"'$;&|<>*?()") == std::string::npos;
    absl::StrAppend(out, plain ? word : absl::StrCat("'", word, "'"));
  });
}

// Versions of what the job ran with, from files.
std::vector<std::string> Versions(const LaunchConfig& config) {
  std::vector<std::string> versions;
  struct utsname system = {};
  if (uname(&system) == 0) versions.push_back(absl::StrCat("kernel ", system.release));
  const std::string python = config.command.python ? FirstProgram(config.command.programs, SearchPath()) : "";
  if (!python.empty()) {
    const char* const home = getenv("HOME");
    const std::string torch = PackagePath(python, "torch-*.dist-info", home == nullptr ? "" : home);
    versions.push_back(absl::StrCat("python ", python));
    if (const size_t at = torch.rfind("/torch-"); at != std::string::npos) {
      versions.push_back(absl::StrCat("torch ", absl::StripSuffix(torch.substr(at + 7), ".dist-info")));
    }
  }
  const std::string driver = ReadSmallFile("/proc/driver/nvidia/version");
  if (!driver.empty())
    versions.push_back(absl::StrCat("GPU driver: ", OneLine(driver.substr(0, driver.find('\n')), 200)));
  return versions;
}

// Returns the record as text of at most about `bytes`, for which it shortens texts.
std::string ShortText(size_t bytes, capsule::v1::Node* node) {
  TextFormat::Printer printer;
  printer.SetUseUtf8StringEscaping(true);
  std::string text;
  // Characters that the format escapes make it longer than the record.
  for (size_t room = bytes / 2;; room /= 2) {
    Shorten(room, node);
    printer.PrintToString(*node, &text);
    if (text.size() <= bytes || room < 1000) return text;
  }
}

std::string WorkingFolder() {
  std::error_code error;
  return fs::current_path(error).string();
}

}  // namespace

// Settings of the launcher, and the state of the threads that write.
struct CapsuleWriter::Shared {
  Shared(const LaunchConfig& launch, const std::vector<std::string>& words) : config(launch), may_have_secrets(words) {}

  const LaunchConfig config;
  const std::vector<std::string> may_have_secrets;
  const std::string command = CommandText(OwnCommandLine());
  const std::vector<std::string> environment = RelevantEnvironment(OwnEnvironment());
  Mutex writing;                                // held while a capsule is written, however long a file system stalls
  std::string newest ABSL_GUARDED_BY(writing);  // name of the last capsule, and number of that write
  uint64_t number ABSL_GUARDED_BY(writing) = 0;
  bool failed ABSL_GUARDED_BY(writing) = false;  // a failure was logged
  Mutex mutex;
  std::string last_folder ABSL_GUARDED_BY(mutex);
};

// One write.
struct CapsuleWriter::Task {
  std::string name;
  capsule::v1::Node node;
  hang::v1::NodeEvidence stacks;
  std::vector<Output> outputs;

  absl::Status Write(const Shared& shared) &&;
  std::string folder(const Shared& shared) const {
    return absl::StrCat(shared.config.options.output.log_dir, "/", kCapsules, "/", name);
  }
  // Text files by name; sets RankEnd.files.
  std::map<std::string, std::string> RankFiles(const SecretMask& mask);
};

std::map<std::string, std::string> CapsuleWriter::Task::RankFiles(const SecretMask& mask) {
  const size_t share = ShareOfNode(node.assignment().group_world_size());
  const size_t limit = share / 2 / (3 * std::max(node.ranks_size(), 1));
  std::map<std::string, std::string> files;
  for (int local_rank = 0; local_rank < node.ranks_size(); ++local_rank) {
    capsule::v1::RankEnd& rank = *node.mutable_ranks(local_rank);
    const auto add = [&](absl::string_view kind, std::string text) {
      if (text.empty()) return;
      std::string file = absl::StrCat("rank-", rank.rank(), ".", kind);
      files[file] = std::move(text);
      rank.add_files(std::move(file));
    };
    const auto add_output = [&](absl::string_view kind, const OutputSource& source) {
      if (source.joined) return;
      // The log file lacks what the pump has not read yet.
      const std::string end = source.tail != nullptr ? source.tail->Text(kMaskedBytes)
                                                     : ReadOutputEnd(source, kMaskedBytes, std::nullopt).text;
      add(kind, LastOutput(end, std::min(limit, kOutputTailBytes), mask));
    };
    add_output("stderr", outputs[local_rank].err);
    add_output("stdout", outputs[local_rank].out);
    for (const hang::v1::Rank& stack : stacks.ranks()) {
      if (stack.rank() != rank.rank()) continue;
      const std::string text = StackText(stack, node.host());
      if (text.empty()) continue;
      std::string when;
      if (stacks.sent_us() != 0) {
        when =
            absl::FormatTime("at %Y-%m-%d %H:%M:%E3SZ\n", absl::FromUnixMicros(stacks.sent_us()), absl::UTCTimeZone());
      }
      add("stack", CutMiddle(mask.Mask(CleanText(absl::StrCat(when, text))), std::max<size_t>(limit, 256)));
    }
  }
  return files;
}

absl::Status CapsuleWriter::Task::Write(const Shared& shared) && {
  node.set_version(kVersion);
  node.set_command(shared.command);
  node.set_folder(WorkingFolder());
  node.mutable_environment()->Assign(shared.environment.begin(), shared.environment.end());
  for (std::string& version : Versions(shared.config)) node.add_versions(std::move(version));
  const SecretMask mask(shared.may_have_secrets);
  const std::map<std::string, std::string> files = RankFiles(mask);
  mask.Mask(&node);
  const int nodes = std::max(node.assignment().group_world_size(), 1);
  const std::string text = ShortText(ShareOfNode(nodes) / 2, &node);

  const std::string own = folder(shared);
  std::error_code error;
  fs::create_directories(own, error);
  if (error) return absl::UnavailableError(absl::StrCat(own, ": ", error.message()));
  const int32_t group_rank = node.assignment().group_rank();
  // In a folder that all nodes share, one of them looks at the other capsules.
  if (group_rank == 0 || !fs::exists(absl::StrCat(own, "/", NodeFileName(0)), error)) {
    const fs::path all = fs::path(own).parent_path();
    std::vector<StoredCapsule> stored = ListCapsules(all);
    size_t bytes = text.size();
    for (const auto& [file, content] : files) bytes += content.size();
    for (StoredCapsule& one : stored) {
      for (const fs::directory_entry& entry : Entries(all / one.name)) {
        const uintmax_t size = entry.file_size(error);
        if (!error) one.bytes += size;
      }
      // The other nodes write as much.
      if (one.name == name) one.bytes = std::max(one.bytes, bytes * nodes);
    }
    for (const std::string& old : CapsulesToRemove(std::move(stored), name)) fs::remove_all(all / old, error);
  }
  for (const auto& [file, content] : files) {
    DDPRUN_RETURN_IF_ERROR(ReplaceFile(absl::StrCat(own, "/", file), content, 0666, kDurable));
  }
  return ReplaceFile(absl::StrCat(own, "/", NodeFileName(group_rank)), text, 0666, kDurable);
}

CapsuleWriter::CapsuleWriter(const LaunchConfig& config, const std::string& host, const std::string& launcher_id,
                             const std::vector<std::string>& may_have_secrets)
    : record_(config.slots), outputs_(config.slots), host_(host), launcher_id_(launcher_id), job_(config.job_id) {
  if (!config.options.output.log_dir.empty()) shared_ = std::make_shared<Shared>(config, may_have_secrets);
}

CapsuleWriter::~CapsuleWriter() = default;

void CapsuleWriter::OnOutput(int32_t local_rank, const OutputSource& out, const OutputSource& err) {
  outputs_[local_rank] = {out, err};
}

void CapsuleWriter::Write(const hang::v1::NodeEvidence& stacks) {
  if (shared_ == nullptr || !record_.has_news()) return;
  Task task{{}, record_.Take(), stacks, outputs_};
  rendezvous::Assignment* const assignment = task.node.has_assignment() ? task.node.mutable_assignment() : nullptr;
  task.name = CapsuleName(job_, assignment, launcher_id_);
  if (assignment != nullptr) assignment->clear_store_secret();
  task.node.set_job(job_);
  task.node.set_host(host_);
  calls_.Start([shared = shared_, task = std::move(task), number = ++started_]() mutable {
    MutexLock lock(&shared->writing);
    if (task.name == shared->newest && number < shared->number) return;  // a later write has overtaken this one
    shared->newest = task.name;
    shared->number = number;
    const std::string folder = task.folder(*shared);
    const absl::Status status = std::move(task).Write(*shared);
    if (status.ok()) {
      MutexLock result(&shared->mutex);
      shared->last_folder = folder;
    } else if (!std::exchange(shared->failed, true)) {
      Log(LogLevel::kWarning, absl::StrCat("can't write what is known about the failure: ", status.message()));
    }
  });
}

std::string CapsuleWriter::Finish(absl::Duration timeout) {
  if (shared_ == nullptr) return "";
  calls_.Wait(timeout);
  MutexLock lock(&shared_->mutex);
  return shared_->last_folder;
}

absl::StatusOr<std::string> FindCapsule(const std::string& path) {
  if (!NodeFiles(path).empty()) return path;
  for (const std::string& folder : {absl::StrCat(path, "/", kCapsules), path}) {
    std::vector<StoredCapsule> stored = ListCapsules(folder);
    std::erase_if(stored,
                  [&](const StoredCapsule& one) { return NodeFiles(absl::StrCat(folder, "/", one.name)).empty(); });
    const auto newest = std::max_element(stored.begin(), stored.end(),
                                         [](const auto& a, const auto& b) { return a.changed < b.changed; });
    if (newest != stored.end()) return absl::StrCat(folder, "/", newest->name);
  }
  return absl::NotFoundError(absl::StrCat("no capsule in ", Quoted(path), ": name a folder of LOG_DIR/", kCapsules,
                                          ", or the --log-dir of a job that has failed"));
}

absl::StatusOr<std::vector<capsule::v1::Node>> ReadCapsule(const std::string& folder) {
  TextFormat::Parser parser;
  parser.AllowUnknownField(true);
  // Reports the errors itself otherwise.
  struct : google::protobuf::io::ErrorCollector {
    void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  } silent;
  parser.RecordErrorsTo(&silent);
  std::vector<capsule::v1::Node> nodes;
  for (const std::string& path : NodeFiles(folder)) {
    capsule::v1::Node node;
    std::error_code error;
    const bool small = fs::file_size(path, error) <= kMaxCapsuleBytes && !error;
    if (small && parser.ParseFromString(ReadSmallFile(path), &node)) {
      nodes.push_back(std::move(node));
    } else {
      Log(LogLevel::kWarning, absl::StrCat("skipping ", Quoted(path), ": it is not a file of a capsule"));
    }
  }
  if (!nodes.empty()) return nodes;
  return absl::InvalidArgumentError(absl::StrCat("no readable node-N.txtpb in ", Quoted(folder)));
}

}  // namespace ddprun::launcher

#include "worker_runtime/checkpoint/checkpoint_info.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun {
namespace {

constexpr char kFormat[] = "1";
constexpr char kUserPrefix[] = "ddprun.user.";

// Reads numbers from metadata and keeps the first error.
class NumberReader {
 public:
  NumberReader(absl::string_view file, const std::map<std::string, std::string>& metadata)
      : file_(file), metadata_(metadata) {}

  template <typename Number>
  void Read(const char* key, Number least, Number* value) {
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) return;
    Number number = 0;
    if (absl::SimpleAtoi(found->second, &number) && number >= least) {
      *value = number;
    } else if (status_.ok()) {
      status_ = absl::DataLossError(absl::StrCat(file_, " is damaged: metadata ", key, " is \"",
                                                 OneLine(found->second, 40), "\", which is not a number"));
    }
  }
  const absl::Status& status() const { return status_; }

 private:
  const absl::string_view file_;
  const std::map<std::string, std::string>& metadata_;
  absl::Status status_;
};

}  // namespace

std::map<std::string, std::string> InfoToMetadata(const CheckpointInfo& info) {
  const Progress& progress = info.progress;
  std::map<std::string, std::string> metadata = {
      {"format", "pt"},  // required by Hugging Face tools
      {"ddprun.format", kFormat},
      {"ddprun.version", info.version},
      {"ddprun.step", absl::StrCat(progress.step)},
      {"ddprun.epoch", absl::StrCat(progress.epoch)},
      {"ddprun.sampler_position", absl::StrCat(progress.sampler_position)},
      {"ddprun.sampler_seed", absl::StrCat(progress.sampler_seed)},
      {"ddprun.world_size", absl::StrCat(info.world_size)},
      {"ddprun.run", absl::StrCat(info.run)},
      {"ddprun.run_id", info.run_id},
      {"ddprun.round", absl::StrCat(info.round.round)},
      {"ddprun.launcher_round", absl::StrCat(info.round.launcher_round)},
  };
  for (const auto& [key, value] : progress.user) metadata.emplace(absl::StrCat(kUserPrefix, key), value);
  return metadata;
}

absl::StatusOr<CheckpointInfo> InfoFromMetadata(absl::string_view file,
                                                const std::map<std::string, std::string>& metadata,
                                                CheckpointInfo defaults) {
  CheckpointInfo info = std::move(defaults);
  if (const auto format = metadata.find("ddprun.format"); format != metadata.end() && format->second != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(file, " has format ", OneLine(format->second, 20),
                                                      ", this library reads format ", kFormat,
                                                      "; use the library that wrote it or a newer one"));
  }
  NumberReader numbers(file, metadata);
  numbers.Read<int64_t>("ddprun.step", 0, &info.progress.step);
  numbers.Read<int64_t>("ddprun.epoch", 0, &info.progress.epoch);
  numbers.Read<int64_t>("ddprun.sampler_position", 0, &info.progress.sampler_position);
  numbers.Read<uint64_t>("ddprun.sampler_seed", 0, &info.progress.sampler_seed);
  numbers.Read<int>("ddprun.world_size", 0, &info.world_size);
  numbers.Read<int64_t>("ddprun.run", 1, &info.run);
  numbers.Read<int64_t>("ddprun.round", 0, &info.round.round);
  numbers.Read<int64_t>("ddprun.launcher_round", 0, &info.round.launcher_round);
  if (!numbers.status().ok()) return numbers.status();
  if (const auto version = metadata.find("ddprun.version"); version != metadata.end()) info.version = version->second;
  if (const auto id = metadata.find("ddprun.run_id"); id != metadata.end()) info.run_id = id->second;
  for (const auto& [key, value] : metadata) {
    if (absl::StartsWith(key, kUserPrefix)) info.progress.user[key.substr(sizeof(kUserPrefix) - 1)] = value;
  }
  return info;
}

}  // namespace ddprun

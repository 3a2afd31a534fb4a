#include "worker_runtime/checkpoint/checkpoint_info.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "worker_runtime/safetensors/checksum.h"

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

constexpr char kRun[] = "run_";
constexpr char kStep[] = "step_";
constexpr char kState[] = ".state-";
constexpr char kExtension[] = ".safetensors";

// "step_00001200", "run_2_step_00001200"
std::string Stem(CheckpointId id) {
  return absl::StrCat(id.run > 1 ? absl::StrCat(kRun, id.run, "_") : "", absl::StrFormat("%s%08d", kStep, id.step));
}

// Parses digits only: no sign, no blanks.
std::optional<int64_t> Number(absl::string_view digits) {
  int64_t number = 0;
  const bool all_digits = std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!all_digits || !absl::SimpleAtoi(digits, &number)) return std::nullopt;
  return number;
}

std::optional<CheckpointId> IdOfStem(absl::string_view stem) {
  CheckpointId id;
  absl::string_view rest = stem;
  if (absl::ConsumePrefix(&rest, kRun)) {
    const size_t end = rest.find('_');
    const std::optional<int64_t> run = Number(rest.substr(0, end));
    if (end == absl::string_view::npos || !run) return std::nullopt;
    id.run = *run;
    rest.remove_prefix(end + 1);
  }
  if (!absl::ConsumePrefix(&rest, kStep)) return std::nullopt;
  const std::optional<int64_t> step = Number(rest);
  if (!step) return std::nullopt;
  id.step = *step;
  if (Stem(id) != stem) return std::nullopt;
  return id;
}

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

std::string ModelFileName(CheckpointId id) { return absl::StrCat(Stem(id), kExtension); }

std::optional<CheckpointId> IdOfModelFile(absl::string_view name) {
  if (!absl::ConsumeSuffix(&name, kExtension)) return std::nullopt;
  return IdOfStem(name);
}

std::string StateFileName(CheckpointId id, absl::string_view unique) {
  return absl::StrCat(Stem(id), kState, unique, kExtension);
}

std::optional<CheckpointId> IdOfStateFile(absl::string_view name) {
  if (!absl::ConsumeSuffix(&name, kExtension)) return std::nullopt;
  const size_t state = name.find(kState);
  if (state == absl::string_view::npos || !ChecksumFromText(name.substr(state + sizeof(kState) - 1))) {
    return std::nullopt;
  }
  return IdOfStem(name.substr(0, state));
}

std::vector<int64_t> StepsToRemove(std::vector<KnownCheckpoint> known, int64_t saved, int keep) {
  std::vector<int64_t> remove;
  if (keep < 1) return remove;
  std::sort(known.begin(), known.end(),
            [](const KnownCheckpoint& a, const KnownCheckpoint& b) { return a.step > b.step; });
  int kept = 0;
  for (const KnownCheckpoint& checkpoint : known) {
    if (checkpoint.step == saved) {
      ++kept;
    } else if (kept >= keep) {
      remove.push_back(checkpoint.step);
    } else if (checkpoint.valid) {
      ++kept;
    }
  }
  return remove;
}

std::optional<int> ChooseOffer(const std::vector<CheckpointOffer>& offers) {
  std::optional<int> best;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const CheckpointOffer& offer = offers[rank];
    const auto newer = [&offer](const CheckpointOffer& than) {
      return std::tie(offer.id, offer.round) > std::tie(than.id, than.round);
    };
    if (offer.found && (!best || newer(offers[static_cast<size_t>(*best)]))) best = static_cast<int>(rank);
  }
  return best;
}

std::vector<int> RanksOfCopies(const std::vector<CheckpointPlace>& places, int copies) {
  std::vector<int> chosen;
  std::set<int64_t> folders = {places[0].folder}, hosts = {places[0].host};
  for (const bool same_host : {false, true}) {
    for (size_t rank = 1; rank < places.size() && std::ssize(chosen) + 1 < copies; ++rank) {
      if (folders.contains(places[rank].folder) || (!same_host && hosts.contains(places[rank].host))) continue;
      folders.insert(places[rank].folder);
      hosts.insert(places[rank].host);
      chosen.push_back(static_cast<int>(rank));
    }
  }
  return chosen;
}

}  // namespace ddprun

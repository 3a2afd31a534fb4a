#include "worker_runtime/checkpoint/checkpoint_names.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "worker_runtime/safetensors/checksum.h"

namespace ddprun {
namespace {

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

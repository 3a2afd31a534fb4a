#include "worker_runtime/data/distributed_sampler.h"

#include <ATen/core/ivalue.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "worker_runtime/data/batch_sampler.h"

namespace ddprun {
namespace {

constexpr char kEpochEntry[] = "epoch";
constexpr char kPositionEntry[] = "position";

}  // namespace

struct DistributedSampler::State {
  int64_t length = 0;
  DistributedSamplerOptions options;
  int64_t epoch = 0;
  int64_t position = 0;
  int64_t begin = 0;            // position after the last reset
  std::optional<int64_t> used;  // nullopt: MarkUsed was never called
  bool keep_position = false;   // across the next reset

  // This rank's share of the shuffled order; monostate: not drawn yet (or not shuffled).
  std::variant<std::monostate, std::vector<uint32_t>, std::vector<uint64_t>> share;

  int64_t Size() const {
    const int64_t replicas = options.num_replicas;
    return options.drop_last ? length / replicas : length / replicas + (length % replicas != 0);
  }

  // Index in the order of all samples of this rank's sample number i. The order is repeated until it divides evenly.
  int64_t Place(int64_t i) const { return (options.rank + i * options.num_replicas) % length; }

  template <typename Number>
  std::vector<Number> DrawShare() const {
    std::vector<Number> order(length);
    RandomPermutation(static_cast<uint64_t>(options.seed) + static_cast<uint64_t>(epoch), absl::MakeSpan(order));
    if (options.num_replicas == 1) return order;
    std::vector<Number> own(Size());
    for (int64_t i = 0; i < Size(); ++i) own[i] = order[Place(i)];
    return own;
  }

  void Draw() {
    if (length <= std::numeric_limits<uint32_t>::max()) {
      share = DrawShare<uint32_t>();
    } else {
      share = DrawShare<uint64_t>();
    }
  }

  size_t Index(int64_t i) const {
    if (const auto* narrow = std::get_if<std::vector<uint32_t>>(&share)) return (*narrow)[i];
    if (const auto* wide = std::get_if<std::vector<uint64_t>>(&share)) return (*wide)[i];
    return Place(i);
  }
};

absl::StatusOr<DistributedSampler> DistributedSampler::Create(int64_t length,
                                                              const DistributedSamplerOptions& options) {
  if (length < 0) {
    return absl::InvalidArgumentError(absl::StrCat("length is ", length, ", but must not be negative"));
  }
  if (options.num_replicas < 1) {
    return absl::InvalidArgumentError(absl::StrCat("num_replicas is ", options.num_replicas,
                                                   ", but must be at least 1 (the size of the process group)"));
  }
  if (options.rank < 0 || options.rank >= options.num_replicas) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", options.rank, ", but must be in the interval [0, ", options.num_replicas - 1, "]"));
  }
  auto state = std::make_shared<State>();
  state->length = length;
  state->options = options;
  return DistributedSampler(std::move(state));
}

DistributedSampler::DistributedSampler(std::shared_ptr<State> state) : state_(std::move(state)) {}

void DistributedSampler::set_epoch(int64_t epoch, std::optional<int64_t> position) {
  const bool resumed = state_->keep_position && epoch == state_->epoch;
  if (!position.has_value()) position = resumed ? state_->position : 0;
  if (epoch != state_->epoch) state_->share = std::monostate();
  state_->epoch = epoch;
  state_->position = std::clamp<int64_t>(*position, 0, state_->Size());
  state_->begin = state_->position;
  if (state_->used.has_value()) state_->used = state_->position;
  state_->keep_position = true;
}

void DistributedSampler::MarkUsed(int64_t samples) {
  State& state = *state_;
  if (!state.used.has_value()) state.used = state.begin;
  state.used = std::clamp<int64_t>(*state.used + samples, 0, state.Size());
}

int64_t DistributedSampler::epoch() const { return state_->epoch; }
int64_t DistributedSampler::position() const { return state_->used.value_or(state_->position); }
const DistributedSamplerOptions& DistributedSampler::options() const { return state_->options; }
int64_t DistributedSampler::size() const { return state_->Size(); }

void DistributedSampler::reset(std::optional<size_t> new_size) {
  if (new_size.has_value() && static_cast<int64_t>(*new_size) != state_->length) {
    state_->length = static_cast<int64_t>(*new_size);
    state_->share = std::monostate();
    state_->position = std::min(state_->position, state_->Size());
  }
  if (!std::exchange(state_->keep_position, false)) state_->position = 0;
  state_->begin = state_->position;
  if (state_->used.has_value()) state_->used = state_->position;
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  State& state = *state_;
  state.keep_position = false;
  const int64_t end =
      state.position + static_cast<int64_t>(std::min<size_t>(batch_size, state.Size() - state.position));
  if (end == state.position) return std::nullopt;
  if (state.options.shuffle && std::holds_alternative<std::monostate>(state.share)) state.Draw();
  std::vector<size_t> indices;
  indices.reserve(end - state.position);
  for (; state.position < end; ++state.position) indices.push_back(state.Index(state.position));
  return indices;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write(kEpochEntry, c10::IValue(state_->epoch));
  archive.write(kPositionEntry, c10::IValue(position()));
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue epoch, position;
  archive.read(kEpochEntry, epoch);
  archive.read(kPositionEntry, position);
  set_epoch(epoch.toInt(), position.toInt());
}

}  // namespace ddprun

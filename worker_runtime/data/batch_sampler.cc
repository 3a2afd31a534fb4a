#include "worker_runtime/data/batch_sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {

BatchSampler::BatchSampler(int64_t length, const BatchSamplerOptions& options) : length_(length), options_(options) {
  if (length < 1) {
    throw std::invalid_argument(absl::StrCat("BatchSampler: length is ", length, ", but must be at least 1"));
  }
  if (options.batch_size < 1) {
    throw std::invalid_argument(
        absl::StrCat("BatchSampler: batch_size is ", options.batch_size, ", but must be at least 1"));
  }
}

void BatchSampler::SetWorld(int rank, int world_size) {
  rank_ = rank;
  world_size_ = world_size;
}

absl::Status BatchSampler::Seek(int64_t epoch, int64_t position) {
  if (epoch < 0 || position < 0 || position > length_) {
    return absl::InvalidArgumentError(absl::StrCat("can't continue at sample ", position, " of epoch ", epoch,
                                                   ": an epoch has ", length_, " samples"));
  }
  epoch_ = epoch;
  position_ = position;
  return absl::OkStatus();
}

Batch BatchSampler::Next() {
  if (position_ == length_) {
    ++epoch_;
    position_ = 0;
  }
  const int64_t left = length_ - position_;
  const int64_t ranks = options_.keep_global_batch ? 1 : world_size_;
  // Avoids an overflow for huge batch sizes, which mean "all".
  const int64_t window = options_.batch_size > left / ranks ? left : options_.batch_size * ranks;
  Batch batch{.epoch = epoch_, .global_size = std::min(window, left)};
  for (int64_t place = rank_; place < batch.global_size; place += world_size_) {
    batch.indices.push_back(SampleAt(position_ + place));
  }
  batch.loss_weight = static_cast<double>(batch.indices.size()) * world_size_ / static_cast<double>(batch.global_size);
  if (batch.indices.empty()) {
    batch.padding = true;
    batch.indices.push_back(SampleAt(position_));
  }
  position_ += batch.global_size;
  return batch;
}

size_t BatchSampler::SampleAt(int64_t place) {
  if (!options_.shuffle) return place;
  const bool is_narrow = length_ <= std::numeric_limits<uint32_t>::max();
  if (drawn_epoch_ != epoch_) {
    // Same as DistributedSampler's.
    const uint64_t seed = static_cast<uint64_t>(options_.seed) + static_cast<uint64_t>(epoch_);
    if (is_narrow) {
      narrow_.resize(length_);
      RandomPermutation(seed, absl::MakeSpan(narrow_));
    } else {
      wide_.resize(length_);
      RandomPermutation(seed, absl::MakeSpan(wide_));
    }
    drawn_epoch_ = epoch_;
  }
  return is_narrow ? narrow_[place] : wide_[place];
}

namespace {

// From this size on PyTorch draws 64 bits for each place, so that the remainder stays sufficiently uniform, and builds
// the permutation from the inside out.
constexpr uint64_t kLarge = std::numeric_limits<uint32_t>::max() / 20;

// Places drawn ahead: enough to hide a cache miss, few enough to stay in the cache.
constexpr size_t kAhead = 64;

// Calls exchange(place, partner_of(place)) for each of the first `count` places of `out`.
template <typename Number, typename PartnerOf, typename Exchange>
void ForEachPlace(absl::Span<Number> out, size_t count, PartnerOf partner_of, Exchange exchange) {
  size_t partner[kAhead];
  for (size_t begin = 0; begin < count; begin += kAhead) {
    const size_t some = std::min(kAhead, count - begin);
    for (size_t i = 0; i < some; ++i) {
      partner[i] = partner_of(begin + i);
      __builtin_prefetch(&out[partner[i]], /*rw=*/1);
    }
    for (size_t i = 0; i < some; ++i) exchange(begin + i, partner[i]);
  }
}

template <typename Number>
void Fill(uint64_t seed, absl::Span<Number> out) {
  std::mt19937 engine(static_cast<uint32_t>(seed));
  const size_t size = out.size();
  if (size >= kLarge) {
    const auto partner_of = [&](size_t place) {
      const uint64_t high = engine();
      return (high << 32 | engine()) % (place + 1);
    };
    ForEachPlace(out, size, partner_of, [&](size_t place, size_t partner) {
      out[place] = out[partner];
      out[partner] = static_cast<Number>(place);
    });
  } else if (size > 0) {
    std::iota(out.begin(), out.end(), Number{0});
    const auto partner_of = [&](size_t place) {
      return place + static_cast<uint32_t>(engine()) % static_cast<uint32_t>(size - place);
    };
    ForEachPlace(out, size - 1, partner_of, [&](size_t place, size_t partner) { std::swap(out[place], out[partner]); });
  }
}

}  // namespace

void RandomPermutation(uint64_t seed, absl::Span<uint32_t> out) { Fill(seed, out); }
void RandomPermutation(uint64_t seed, absl::Span<uint64_t> out) { Fill(seed, out); }

}  // namespace ddprun

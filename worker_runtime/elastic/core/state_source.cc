#include "worker_runtime/elastic/core/state_source.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ddprun {

std::optional<int> ChooseStateSource(absl::Span<const std::optional<CommittedPoint>> committed) {
  std::optional<int> source;
  for (size_t rank = 0; rank < committed.size(); ++rank) {
    if (!committed[rank].has_value()) continue;
    if (!source.has_value() || *committed[rank] > *committed[*source]) source = static_cast<int>(rank);
  }
  return source;
}

std::string BucketLayoutText(const BucketLayout& layout) {
  return absl::StrJoin(layout, ";", [](std::string* out, const std::vector<size_t>& bucket) {
    absl::StrAppend(out, absl::StrJoin(bucket, " "));
  });
}

absl::StatusOr<BucketLayout> FromBucketLayoutText(absl::string_view text) {
  BucketLayout layout;
  for (const absl::string_view bucket : absl::StrSplit(text, ';')) {
    layout.emplace_back();
    for (const absl::string_view number : absl::StrSplit(bucket, ' ')) {
      size_t index = 0;
      if (!absl::SimpleAtoi(number, &index)) return absl::DataLossError("not a layout of buckets");
      layout.back().push_back(index);
    }
  }
  return layout;
}

}  // namespace ddprun

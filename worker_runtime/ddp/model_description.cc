#include "worker_runtime/ddp/model_description.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

constexpr char kSameModel[] = "; build the same model in the same order on all ranks";

std::string Shape(const ModelDescription::Entry& entry) {
  return absl::StrCat("[", absl::StrJoin(entry.shape, ", "), "]");
}

std::string Quoted(const ModelDescription::Entry& entry) {
  return absl::StrCat(entry.buffer ? "buffer \"" : "parameter \"", entry.name, "\"");
}

std::string Differs(absl::string_view what, absl::string_view a, int rank_a, absl::string_view b, int rank_b) {
  return absl::StrCat(what, " ", a, " on rank ", rank_a, " and ", b, " on rank ", rank_b);
}

std::string OptionDifference(const ModelDescription& a, int rank_a, const ModelDescription& b, int rank_b) {
  for (size_t i = 0; i < std::min(a.options.size(), b.options.size()); ++i) {
    if (a.options[i] == b.options[i]) continue;
    return absl::StrCat(
        Differs(absl::StrCat(a.options[i].first, " is"), a.options[i].second, rank_a, b.options[i].second, rank_b),
        "; use the same DdpOptions on all ranks");
  }
  return "";
}

std::string EntryDifference(const ModelDescription::Entry& a, int rank_a, const ModelDescription::Entry& b,
                            int rank_b) {
  if (a.name != b.name || a.buffer != b.buffer) {
    return absl::StrCat(Differs("the models differ: the same position has", Quoted(a), rank_a, Quoted(b), rank_b),
                        kSameModel);
  }
  if (a.shape != b.shape) {
    return absl::StrCat(Differs(Quoted(a) + " has shape", Shape(a), rank_a, Shape(b), rank_b), kSameModel);
  }
  if (a.dtype != b.dtype) {
    return absl::StrCat(Differs(Quoted(a) + " has dtype", a.dtype, rank_a, b.dtype, rank_b), kSameModel);
  }
  if (a.trained != b.trained) {
    return absl::StrCat(Quoted(a), " requires a gradient on rank ", a.trained ? rank_a : rank_b, " but not on rank ",
                        a.trained ? rank_b : rank_a, "; freeze the same parameters on all ranks");
  }
  return "";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> DescribeOptions(const DdpOptions& options) {
  const auto yes_no = [](bool value) { return std::string(value ? "true" : "false"); };
  std::string layout = "unset";
  if (options.initial_bucket_layout.has_value()) {
    layout = absl::StrJoin(
        *options.initial_bucket_layout, "|",
        [](std::string* out, const std::vector<size_t>& bucket) { absl::StrAppend(out, absl::StrJoin(bucket, ",")); });
  }
  return {
      {"bucket_cap_mb", options.bucket_cap_mb.has_value() ? absl::StrCat(*options.bucket_cap_mb) : "unset"},
      {"measure_bucket_cap", yes_no(options.measure_bucket_cap)},
      {"find_unused_parameters", yes_no(options.find_unused_parameters)},
      {"static_graph", yes_no(options.static_graph)},
      {"shared_memory", yes_no(options.shared_memory)},
      {"broadcast_buffers", yes_no(options.broadcast_buffers)},
      {"initial_bucket_layout", layout},
  };
}

std::string EncodeDescription(const ModelDescription& description) {
  std::string text;
  for (const auto& [name, value] : description.options) absl::StrAppend(&text, "o\t", name, "\t", value, "\n");
  for (const ModelDescription::Entry& entry : description.entries) {
    const char kind = entry.buffer ? 'b' : entry.trained ? 't' : 'p';
    absl::StrAppend(&text, std::string(1, kind), "\t", entry.name, "\t", entry.dtype, "\t",
                    absl::StrJoin(entry.shape, ","), "\n");
  }
  return text;
}

absl::StatusOr<ModelDescription> DecodeDescription(absl::string_view text) {
  ModelDescription description;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    const absl::Status bad = absl::InternalError(absl::StrCat("malformed model description: ", line));
    if (fields[0] == "o" && fields.size() == 3) {
      description.options.emplace_back(fields[1], fields[2]);
      continue;
    }
    if (fields.size() != 4 || (fields[0] != "b" && fields[0] != "t" && fields[0] != "p")) return bad;
    ModelDescription::Entry entry;
    entry.buffer = fields[0] == "b";
    entry.trained = fields[0] == "t";
    entry.name = fields[1];
    entry.dtype = fields[2];
    for (absl::string_view size : absl::StrSplit(fields[3], ',', absl::SkipEmpty())) {
      if (!absl::SimpleAtoi(size, &entry.shape.emplace_back())) return bad;
    }
    description.entries.push_back(std::move(entry));
  }
  return description;
}

std::string FirstDifference(const ModelDescription& a, int rank_a, const ModelDescription& b, int rank_b) {
  if (std::string difference = OptionDifference(a, rank_a, b, rank_b); !difference.empty()) return difference;
  const size_t common = std::min(a.entries.size(), b.entries.size());
  for (size_t i = 0; i < common; ++i) {
    std::string difference = EntryDifference(a.entries[i], rank_a, b.entries[i], rank_b);
    if (!difference.empty()) return difference;
  }
  if (a.entries.size() == b.entries.size()) return "";
  const bool a_has_more = a.entries.size() > b.entries.size();
  return absl::StrCat("the models differ: ", Quoted((a_has_more ? a : b).entries[common]), " is on rank ",
                      a_has_more ? rank_a : rank_b, " but not on rank ", a_has_more ? rank_b : rank_a, kSameModel);
}

}  // namespace ddprun

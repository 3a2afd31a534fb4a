#include "worker_runtime/checkpoint/agreement.h"

#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

// "5 the message"
std::string StatusText(const absl::Status& status) {
  return absl::StrCat(static_cast<int>(status.code()), " ", status.message());
}

absl::Status StatusOfText(const std::string& text) {
  const size_t blank = text.find(' ');
  if (blank == std::string::npos) return absl::InternalError("rank 0 sent no outcome");
  const int code = std::atoi(text.c_str());
  return absl::Status(static_cast<absl::StatusCode>(code), text.substr(blank + 1));
}

}  // namespace

int RankIn(const ProcessGroup* group) { return group == nullptr ? 0 : group->rank(); }
int SizeOf(const ProcessGroup* group) { return group == nullptr ? 1 : group->size(); }

c10::Device DeviceOf(const ProcessGroup& group) {
  if (group.backend() != "nccl") return c10::DeviceType::CPU;
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice();
}

absl::Status OutcomeOfRankZero(ProcessGroup* group, const absl::Status& mine) {
  if (SizeOf(group) == 1) return mine;
  const absl::StatusOr<std::string> text = group->BroadcastText(StatusText(mine), 0);
  return text.ok() ? StatusOfText(*text) : text.status();
}

absl::Status OutcomeOfAll(ProcessGroup* group, const absl::Status& mine) {
  if (SizeOf(group) == 1) return mine;
  std::vector<at::Tensor> codes;
  const absl::Status gathered = group->Try("agree on the outcome", [&]() -> absl::Status {
    const at::Tensor code = at::full({1}, static_cast<int64_t>(mine.code()), at::kLong).to(DeviceOf(*group));
    absl::StatusOr<std::vector<at::Tensor>> all = group->AllGather(code);
    if (!all.ok()) return all.status();
    for (const at::Tensor& one : *all) codes.push_back(one.to(c10::DeviceType::CPU));
    return absl::OkStatus();
  });
  if (!gathered.ok()) return gathered;
  for (int rank = 0; rank < group->size(); ++rank) {
    const int64_t code = *codes[static_cast<size_t>(rank)].const_data_ptr<int64_t>();
    if (code == 0) continue;
    const absl::StatusOr<std::string> text = group->BroadcastText(StatusText(mine), rank);
    if (!text.ok()) return text.status();
    const absl::Status theirs = StatusOfText(*text);
    return rank == group->rank() ? mine
                                 : absl::Status(theirs.code(), absl::StrCat("rank ", rank, ": ", theirs.message()));
  }
  return absl::OkStatus();
}

}  // namespace ddprun

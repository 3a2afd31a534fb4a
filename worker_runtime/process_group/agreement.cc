#include "worker_runtime/process_group/agreement.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "worker_runtime/base/torch_try.h"

namespace ddprun {
namespace {

constexpr absl::Duration kHintAfter = absl::Seconds(10);
// Waits for the store can't be interrupted: an abort of the group goes unnoticed for at most this long.
constexpr absl::Duration kLongestWait = absl::Seconds(1);
constexpr size_t kMostNamed = 8;

}  // namespace

int RankIn(const ProcessGroup* group) { return group == nullptr ? 0 : group->rank(); }
int SizeOf(const ProcessGroup* group) { return group == nullptr ? 1 : group->size(); }

std::string StatusText(const absl::Status& status) {
  return absl::StrCat(static_cast<int>(status.code()), " ", status.message());
}

absl::StatusOr<std::string> FromStatusText(const std::string& text) {
  const size_t blank = text.find(' ');
  if (blank == std::string::npos) return absl::InternalError("a rank sent a malformed status");
  const auto code = static_cast<absl::StatusCode>(std::atoi(text.c_str()));
  if (code == absl::StatusCode::kOk) return text.substr(blank + 1);
  return absl::Status(code, text.substr(blank + 1));
}

absl::Status OutcomeOfAll(ProcessGroup* group, const absl::Status& mine) {
  if (SizeOf(group) == 1) return mine;
  int64_t lowest = mine.ok() ? group->size() : group->rank();
  const absl::Status agreed = group->Try("agree on the outcome", [&]() -> absl::Status {
    const at::Tensor failed = at::full({1}, lowest, at::TensorOptions(at::kLong).device(group->device()));
    DDPRUN_RETURN_IF_ERROR(group->AllReduce(failed, ReduceOp::kMin));
    lowest = failed.item<int64_t>();
    return absl::OkStatus();
  });
  if (!agreed.ok() || lowest == group->size()) return agreed;
  const absl::StatusOr<std::string> text = group->BroadcastText(StatusText(mine), static_cast<int>(lowest));
  return text.ok() ? FromStatusText(*text).status() : text.status();
}

RankMeeting::RankMeeting(ProcessGroup* group, std::string call) : group_(group), call_(std::move(call)) {}

std::string RankMeeting::NextKey() { return absl::StrCat("meeting/", call_, "/", steps_++); }

absl::Status RankMeeting::WithStore(absl::FunctionRef<void(c10d::Store&)> use) {
  const absl::Status status = group_->Try(call_, [&] {
    use(*group_->store());
    return absl::OkStatus();
  });
  // Ranks that are blocked in a collective would wait until its timeout, and this error alone does not mark the group
  // as broken.
  if (absl::IsUnavailable(status)) group_->Abort(status.message());
  return status;
}

absl::StatusOr<bool> RankMeeting::AwaitKey(const std::string& key, absl::Duration timeout,
                                           absl::FunctionRef<void()> hint) {
  const SteadyTime start = SteadyNow();
  bool hinted = false;
  for (;;) {
    const absl::Duration waited = SteadyNow() - start;
    const absl::Duration slice = std::clamp(timeout - waited, absl::Milliseconds(1), kLongestWait);
    bool there = false;
    // A wait that times out throws, like a lost connection; `check` tells them apart.
    DDPRUN_RETURN_IF_ERROR(WithStore([&](c10d::Store& store) {
      const absl::Status in_time = TorchTry("", [&] {
        store.wait({key}, absl::ToChronoMilliseconds(slice));
        return absl::OkStatus();
      });
      there = in_time.ok() || store.check({key});
    }));
    if (there || waited >= timeout) return there;
    if (waited >= kHintAfter && !std::exchange(hinted, true)) hint();
  }
}

absl::StatusOr<std::string> RankMeeting::Missing(const std::string& key, int64_t number) {
  std::vector<std::string> missing;
  size_t count = 0;
  DDPRUN_RETURN_IF_ERROR(WithStore([&](c10d::Store& store) {
    for (int rank = 0; rank < group_->size(); ++rank) {
      if (store.add(absl::StrCat(key, "/rank/", rank), 0) >= number) continue;
      if (++count <= kMostNamed) missing.push_back(absl::StrCat("rank ", rank));
    }
  }));
  return absl::StrCat(absl::StrJoin(missing, ", "),
                      count > kMostNamed ? absl::StrCat(" and ", count - kMostNamed, " more") : "");
}

absl::Status RankMeeting::AwaitAll(absl::Duration timeout) {
  if (SizeOf(group_) == 1) return absl::OkStatus();
  const std::string key = NextKey();
  int64_t number = 0;
  const auto all_are_here = [&key](int64_t n) { return absl::StrCat(key, "/all/", n); };
  absl::Status status = WithStore([&](c10d::Store& store) {
    number = store.add(absl::StrCat(key, "/rank/", group_->rank()), 1);
    if (store.add(absl::StrCat(key, "/arrived"), 1) != number * group_->size()) return;
    store.set(all_are_here(number), "");
    // All ranks have returned from the previous call.
    if (number > 1) store.deleteKey(all_are_here(number - 1));
  });
  if (!status.ok()) return status;
  if (number_ == 0) number_ = number;
  const auto tell_missing = [&] {
    const absl::StatusOr<std::string> missing = Missing(key, number);
    if (!missing.ok()) return;
    std::fputs(absl::StrCat("ddprun: rank ", group_->rank(), " is waiting in ", call_, " for ", *missing,
                            "; all ranks must call ", call_, "\n")
                   .c_str(),
               stderr);
  };
  DDPRUN_ASSIGN_OR_RETURN(const bool all, AwaitKey(all_are_here(number), timeout, tell_missing));
  if (all) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(const std::string missing, Missing(key, number));
  status = absl::DeadlineExceededError(absl::StrCat("rank ", group_->rank(), ": ", call_, ": timed out after ",
                                                    absl::FormatDuration(timeout), " waiting for ", missing,
                                                    "; all ranks must call ", call_));
  group_->Abort(status.message());
  return status;
}

absl::StatusOr<std::string> RankMeeting::AwaitText(int root, const absl::StatusOr<std::string>& mine,
                                                   absl::Duration timeout) {
  if (SizeOf(group_) == 1) return mine;
  const std::string key = NextKey();
  const auto key_of = [&key](int64_t n) { return absl::StrCat(key, "/from/", n); };
  if (group_->rank() == root) {
    // Posts even if the group has failed: the others may not know it.
    const absl::Status posted = TorchTry(call_, [&] {
      group_->store()->set(key_of(number_), mine.ok() ? absl::StrCat("0 ", *mine) : StatusText(mine.status()));
      if (number_ > 1) group_->store()->deleteKey(key_of(number_ - 1));
      return absl::OkStatus();
    });
    return posted.ok() || !mine.ok() ? mine : posted;
  }
  DDPRUN_ASSIGN_OR_RETURN(const bool there, AwaitKey(key_of(number_), timeout, [] {}));
  if (!there) {
    return absl::DeadlineExceededError(absl::StrCat("rank ", group_->rank(), ": ", call_, ": rank ", root,
                                                    " did not finish within ", absl::FormatDuration(timeout),
                                                    "; check its disk and whether it is stuck or dead"));
  }
  std::string text;
  const absl::Status read = WithStore([&](c10d::Store& store) { text = store.get_to_str(key_of(number_)); });
  return read.ok() ? FromStatusText(text) : read;
}

absl::Status RankMeeting::AwaitOutcome(int root, const absl::Status& mine, absl::Duration timeout) {
  return AwaitText(root, mine.ok() ? absl::StatusOr<std::string>("") : mine, timeout).status();
}

}  // namespace ddprun

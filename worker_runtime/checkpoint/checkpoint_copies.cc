#include "worker_runtime/checkpoint/checkpoint_copies.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/steady_time.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/process_group/meeting.h"
#include "worker_runtime/safetensors/checksum.h"
#include "worker_runtime/safetensors/tensor_bytes.h"
#include "worker_runtime/state/state_loader.h"
#include "worker_runtime/state/tensor_stream.h"

namespace ddprun {
namespace {

// Pauses between polls of the store. A blocking wait would hold up its other users.
constexpr absl::Duration kFirstPause = absl::Milliseconds(1);
constexpr absl::Duration kLongestPause = absl::Milliseconds(100);

// The tensors of one part that rank 0 sends to the other ranks.
struct SentPart {
  StatePart& part;
  SentTensors sent = {};
  std::vector<size_t> places = {};  // index in `part` of each tensor of `sent`; empty where `part` is
  PieceBuffers buffers = {};

  // Chooses the tensors to send. Called on rank 0.
  absl::Status Choose(absl::FunctionRef<bool(const std::string& name)> may_differ) {
    std::vector<SafetensorsTensor> chosen;
    for (const SafetensorsTensor& tensor : part.layout.tensors) {
      if (may_differ(tensor.name)) chosen.push_back(tensor);
    }
    DDPRUN_ASSIGN_OR_RETURN(SafetensorsHeader header, LayOutSafetensors(std::move(chosen), part.layout.metadata));
    sent.path = "rank 0's state";
    sent.header = std::move(header);
    sent.read = [this](size_t index, char* to) {
      TensorOnBytes(sent.header.tensors[index], to).copy_(part.tensors[places[index]].detach());
    };
    return absl::OkStatus();
  }

  // Performs all steps that can fail, before tensors are sent.
  absl::Status Plan(const ProcessGroup& group, bool writes) {
    buffers = BuffersFor(group, sent);
    if (!writes) return absl::OkStatus();
    part.layout.metadata = sent.header.metadata;
    const std::vector<SafetensorsTensor>& here = part.layout.tensors;
    for (const SafetensorsTensor& tensor : sent.header.tensors) {
      const auto same = std::find_if(here.begin(), here.end(), [&tensor](const SafetensorsTensor& mine) {
        return mine.name == tensor.name && mine.dtype == tensor.dtype && mine.shape == tensor.shape;
      });
      if (same == here.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor \"", tensor.name, "\" is missing or has another shape or type than on rank 0"));
      }
      places.push_back(static_cast<size_t>(same - here.begin()));
    }
    return absl::OkStatus();
  }
};

}  // namespace

absl::StatusOr<CheckpointPlace> PlaceOf(CheckpointFolder& folder) {
  DDPRUN_ASSIGN_OR_RETURN(const int64_t id, folder.Identify());
  return CheckpointPlace{id, static_cast<int64_t>(Checksum(ThisProcess().host))};
}

absl::StatusOr<std::vector<int>> ChooseCopyRanks(ProcessGroup* group, const CheckpointPlace& mine, int copies) {
  std::vector<CheckpointPlace> places = {mine};
  if (SizeOf(group) > 1) {
    DDPRUN_ASSIGN_OR_RETURN(const auto all,
                            group->AllGather(at::tensor({mine.folder, mine.host}, at::kLong).to(group->device())));
    places.clear();
    for (const at::Tensor& one : all) places.push_back({one[0].item<int64_t>(), one[1].item<int64_t>()});
  }
  std::vector<int> ranks = RanksOfCopies(places, copies);
  if (RankIn(group) == 0 && std::ssize(ranks) + 1 < copies) {
    std::fputs(absl::StrCat("ddprun checkpoint: WARNING: only ", ranks.size() + 1, " of ", copies,
                            " copies of each checkpoint will be saved: the ranks have no other folders; start the job "
                            "on more nodes, each with a folder on its own disk\n")
                   .c_str(),
               stderr);
  }
  return ranks;
}

absl::Status BroadcastRankZeroParts(ProcessGroup& group, const absl::Status& made, StateParts& parts) {
  const bool sends = group.rank() == 0;
  const auto agree = [&group](const absl::Status& mine) {
    return OutcomeOfAll(
        &group,
        mine.ok() ? mine : absl::Status(mine.code(), absl::StrCat("rank ", group.rank(), ": ", mine.message())));
  };
  const std::set<std::string> parameters(parts.parameters.begin(), parts.parameters.end());
  SentPart model{parts.model}, rest{parts.rest};
  absl::Status status = made;
  if (sends && status.ok()) {
    status = model.Choose([&parameters](const std::string& name) { return !parameters.contains(name); });
    if (status.ok()) status = rest.Choose([](const std::string& name) { return name.starts_with(kUserTensorPrefix); });
  }
  if (status = agree(status); !status.ok()) return status;
  for (SentPart* const half : {&model, &rest}) {
    const absl::Status header = SendHeader(group, 0, SafetensorsHeaderText(half->sent.header), &half->sent);
    if (status.ok()) status = header;
  }
  if (status.ok()) {
    status = TorchTry("", [&] {
      const bool writes = !parts.rest.tensors.empty();  // random numbers, at least
      const absl::Status planned = model.Plan(group, writes);
      return planned.ok() ? rest.Plan(group, writes) : planned;
    });
  }
  if (status = agree(status); !status.ok()) return status;
  for (SentPart* const half : {&model, &rest}) {
    const absl::Status received =
        VisitSent(group, 0, half->sent, half->buffers, [&](size_t index, const at::Tensor& value) {
          if (!sends && !half->places.empty()) half->part.tensors[half->places[index]] = value.clone();
        });
    if (status.ok()) status = received;
  }
  return agree(status);
}

CopyOutcomes::CopyOutcomes(c10::intrusive_ptr<c10d::Store> store, std::string save, std::vector<int> ranks)
    : store_(std::move(store)), save_(std::move(save)), ranks_(std::move(ranks)) {}

std::string CopyOutcomes::KeyOf(int rank) const { return absl::StrCat("copy/", save_, "/", rank); }

void CopyOutcomes::Post(int rank, const absl::Status& outcome) const {
  TorchTry("", [&] {
    store_->set(KeyOf(rank), StatusText(outcome));
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status CopyOutcomes::Await(absl::Duration timeout, const std::atomic<bool>& cancelled) const {
  const SteadyTime start = SteadyNow();
  return TorchTry("wait for the copies of the other ranks", [&]() -> absl::Status {
    for (const int rank : ranks_) {
      for (absl::Duration pause = kFirstPause; !store_->check({KeyOf(rank)});
           pause = std::min(2 * pause, kLongestPause)) {
        if (cancelled) return absl::CancelledError("the group of ranks has changed");
        if (SteadyNow() - start >= timeout) {
          return absl::DeadlineExceededError(
              absl::StrCat("rank ", rank, " has not written its copy within ", absl::FormatDuration(timeout)));
        }
        absl::SleepFor(pause);
      }
      const absl::Status outcome = FromStatusText(store_->get_to_str(KeyOf(rank))).status();
      store_->deleteKey(KeyOf(rank));
      if (!outcome.ok()) return absl::Status(outcome.code(), absl::StrCat("rank ", rank, ": ", outcome.message()));
    }
    return absl::OkStatus();
  });
}

}  // namespace ddprun

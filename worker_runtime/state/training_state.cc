#include "worker_runtime/state/training_state.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/data/batch_sampler.h"
#include "worker_runtime/data/distributed_sampler.h"
#include "worker_runtime/extras/amp.h"
#include "worker_runtime/extras/optim.h"
#include "worker_runtime/process_group/agreement.h"
#include "worker_runtime/safetensors/checksum.h"
#include "worker_runtime/state/optimizer_state.h"
#include "worker_runtime/state/state_loader.h"
#include "worker_runtime/state/tensor_stream.h"

namespace ddprun {
namespace {

using nlohmann::json;

absl::Status NotUnderstood(const std::string& text) {
  return absl::DataLossError(absl::StrCat("\"", OneLine(text, 60), "\" is not a value of this type"));
}

// Encodes a sampler's position, in samples of all ranks together.
std::string SamplerText(int64_t epoch, int64_t position, int64_t seed) {
  return json{{"epoch", epoch}, {"position", position}, {"seed", seed}}.dump();
}

absl::Status LoadSampler(const std::string& text, int64_t seed,
                         absl::FunctionRef<absl::Status(int64_t epoch, int64_t position)> seek) {
  const json said = json::parse(text, nullptr, /*allow_exceptions=*/false);
  for (const char* key : {"epoch", "position", "seed"}) {
    if (!said.is_object() || !said.contains(key) || !said[key].is_number_integer()) return NotUnderstood(text);
  }
  if (said["seed"].get<int64_t>() != seed) {
    return absl::InvalidArgumentError(absl::StrCat("the sampler was saved with seed ", said["seed"].get<int64_t>(),
                                                   ", but this one has ", seed, "; use the same seed"));
  }
  return seek(said["epoch"].get<int64_t>(), said["position"].get<int64_t>());
}

absl::StatusOr<StatePart> LayOut(const NamedTensors& tensors, std::map<std::string, std::string> metadata) {
  DDPRUN_ASSIGN_OR_RETURN(std::vector<SafetensorsTensor> described, DescribeTensors(tensors));
  DDPRUN_ASSIGN_OR_RETURN(SafetensorsHeader layout, LayOutSafetensors(std::move(described), std::move(metadata)));
  std::map<absl::string_view, at::Tensor> by_name;
  for (const auto& [name, tensor] : tensors) by_name[name] = tensor;
  StatePart part;
  for (const SafetensorsTensor& tensor : layout.tensors) part.tensors.push_back(by_name[tensor.name]);
  part.layout = std::move(layout);
  return part;
}

// Copies `now`, into the memory of the last copy if it fits.
void Keep(const at::Tensor& now, at::Tensor* kept) {
  const bool fits =
      kept->defined() && kept->sizes() == now.sizes() && kept->dtype() == now.dtype() && kept->device() == now.device();
  if (fits) {
    kept->copy_(now.detach());
  } else {
    *kept = now.detach().clone();
  }
}

// Returns some values of each parameter, in one tensor per device and dtype, to detect an optimizer's step. LibTorch's
// optimizers write to `data()`, which does not increment the parameter's version.
std::vector<at::Tensor> Samples(const torch::nn::Module& module) {
  constexpr int64_t kValues = 8;
  std::map<std::string, std::vector<at::Tensor>> devices;
  for (const at::Tensor& parameter : module.parameters()) {
    if (!parameter.defined() || parameter.numel() == 0 || !parameter.is_non_overlapping_and_dense()) continue;
    const at::Tensor flat = parameter.detach().as_strided({std::min(kValues, parameter.numel())}, {1});
    devices[absl::StrCat(parameter.device().str(), c10::toString(parameter.scalar_type()))].push_back(flat);
  }
  std::vector<at::Tensor> samples;
  for (const auto& [device, parts] : devices) samples.push_back(at::cat(parts));
  return samples;
}

bool SameSamples(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  // NaN is not equal to itself: a state with NaN counts as changed.
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

bool IsFloat(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

// Returns the names of `tensors` with a value that is not finite (`nan_only`: a NaN). If a sum is finite, all its terms
// are; computing it reads every value once, at memory speed. One synchronization per device.
std::vector<std::string> NotFinite(const NamedTensors& tensors, bool nan_only) {
  const at::NoGradGuard no_grad;
  std::map<std::string, std::pair<std::vector<const NamedTensors::value_type*>, std::vector<at::Tensor>>> devices;
  for (const auto& item : tensors) {
    if (!item.second.defined() || item.second.numel() == 0 || !IsFloat(item.second) || item.second.is_meta()) continue;
    auto& [items, sums] = devices[item.second.device().str()];
    items.push_back(&item);
    sums.push_back(item.second.scalar_type() == at::kDouble ? item.second.sum() : item.second.sum(at::kFloat));
  }
  std::set<std::string> bad;
  for (auto& [device, checked] : devices) {
    for (at::Tensor& sum : checked.second) sum = sum.to(at::kDouble);
    const at::Tensor sums = at::stack(checked.second).cpu();
    const double* const values = sums.const_data_ptr<double>();
    for (size_t i = 0; i < checked.first.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      // The sum of large values may overflow.
      const at::Tensor& tensor = checked.first[i]->second;
      const at::Tensor fine = nan_only ? at::isnan(tensor).logical_not() : at::isfinite(tensor);
      if (!fine.all().item<bool>()) bad.insert(checked.first[i]->first);
    }
  }
  std::vector<std::string> in_order;
  for (const auto& [name, tensor] : tensors) {
    if (bad.contains(name)) in_order.push_back(name);
  }
  return in_order;
}

// ---- comparison of the ranks ----

constexpr char kParameters[] = "the parameters";
constexpr char kBuffers[] = "the buffers";
constexpr char kOptimizer[] = "the optimizer";

std::string InQuotes(absl::string_view name) { return absl::StrCat("\"", name, "\""); }

// Checksums of the parts of a state, keyed by the part's name in messages.
std::map<std::string, uint64_t> Digest(const StateParts& parts) {
  std::map<std::string, ChecksumStream> streams;
  const std::set<std::string> parameters(parts.parameters.begin(), parts.parameters.end());
  for (size_t i = 0; i < parts.model.tensors.size(); ++i) {
    const bool trained = parameters.contains(parts.model.layout.tensors[i].name);
    streams[trained ? kParameters : kBuffers].Add(HostBytes(ToHost(parts.model.tensors[i])));
  }
  for (size_t i = 0; i < parts.rest.tensors.size(); ++i) {
    absl::string_view name = parts.rest.layout.tensors[i].name;
    const bool moment = absl::StartsWith(name, kOptimizerStatePrefix);
    // Skips LibTorch's archive of an optimizer of another kind, which contains addresses.
    if (!moment && !absl::ConsumePrefix(&name, kUserTensorPrefix)) continue;
    streams[moment ? kOptimizer : InQuotes(name)].Add(HostBytes(ToHost(parts.rest.tensors[i])));
  }
  for (const auto& [key, text] : parts.rest.layout.metadata) {
    absl::string_view name = key;
    const bool groups = name == kOptimizerGroupsKey;  // learning rates and other options
    if (!groups && !absl::ConsumePrefix(&name, kStateTextPrefix)) continue;
    streams[groups ? kOptimizer : InQuotes(name)].Add(text);
  }
  std::map<std::string, uint64_t> digest;
  for (const auto& [part, stream] : streams) digest[part] = stream.Value();
  return digest;
}

}  // namespace

absl::Status StateParts::CheckFinite() const {
  std::map<std::string, at::Tensor> left;
  for (size_t i = 0; i < model.tensors.size(); ++i) left.emplace(model.layout.tensors[i].name, model.tensors[i]);
  NamedTensors trained, moments;
  for (const std::string& name : parameters) {
    // A tied parameter appears only once.
    if (auto found = left.extract(name)) trained.emplace_back(name, found.mapped());
  }
  const NamedTensors buffers(left.begin(), left.end());
  for (size_t i = 0; i < rest.tensors.size(); ++i) {
    const std::string& name = rest.layout.tensors[i].name;
    if (absl::StartsWith(name, kOptimizerStatePrefix)) moments.emplace_back(name, rest.tensors[i]);
  }
  if (const std::vector<std::string> bad = NotFinite(trained, /*nan_only=*/false); !bad.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter \"", bad.front(), "\" has NaN or infinite values",
                     bad.size() > 1 ? absl::StrCat(", as have ", bad.size() - 1, " others of ", trained.size()) : "",
                     "; lower the learning rate, clip gradients, or skip steps whose loss is not finite"));
  }
  if (const std::vector<std::string> bad = NotFinite(buffers, /*nan_only=*/true); !bad.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("buffer \"", bad.front(), "\" has NaN values"));
  }
  if (const std::vector<std::string> bad = NotFinite(moments, /*nan_only=*/false); !bad.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("tensor \"", bad.front(), "\" has NaN or infinite values"));
  }
  return absl::OkStatus();
}

struct TrainingState::Committed {
  Scope scope = Scope::kStep;
  std::map<std::string, at::Tensor> buffers;
  std::map<std::string, at::Tensor> gradients;  // undefined: there was no gradient
  std::set<std::string> zeroed;                 // parameters that had a gradient, which was not copied
  std::vector<at::Tensor> samples;              // some values of the parameters
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> texts;
  std::vector<double> learning_rates;  // per parameter group
  at::Tensor random;
  std::optional<StateParts> everything;
};

TrainingState::TrainingState(torch::nn::Module& module, torch::optim::Optimizer* optimizer)
    : module_(module), optimizer_(optimizer) {}
TrainingState::~TrainingState() = default;

absl::Status TrainingState::CheckName(const std::string& name) const {
  if (name.empty()) return absl::InvalidArgumentError("a name in the training state is empty");
  if (!tensors_.contains(name) && !texts_.contains(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" was already added to the training state"));
}

absl::Status TrainingState::AddTensor(const std::string& name, at::Tensor tensor) {
  DDPRUN_RETURN_IF_ERROR(CheckName(name));
  if (!tensor.defined()) return absl::InvalidArgumentError(absl::StrCat("tensor \"", name, "\" is undefined"));
  tensors_[name] = std::move(tensor);
  return absl::OkStatus();
}

absl::Status TrainingState::AddText(const std::string& name, std::function<std::string()> save,
                                    std::function<absl::Status(const std::string&)> load) {
  DDPRUN_RETURN_IF_ERROR(CheckName(name));
  texts_[name] = {std::move(save), std::move(load)};
  return absl::OkStatus();
}

absl::Status TrainingState::AddObject(const void* object, const std::string& name, Text text) {
  if (objects_.contains(object)) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(CheckName(name));
  text.same_on_all_ranks = true;
  texts_[name] = std::move(text);
  objects_.insert(object);
  return absl::OkStatus();
}

absl::Status TrainingState::AddValue(const std::string& name, double* value) {
  // All digits; "inf" and "nan" as well.
  return AddText(
      name, [value] { return absl::StrFormat("%.17g", *value); },
      [value](const std::string& text) {
        return absl::SimpleAtod(text, value) ? absl::OkStatus() : NotUnderstood(text);
      });
}

absl::Status TrainingState::AddValue(const std::string& name, int64_t* value) {
  return AddText(
      name, [value] { return absl::StrCat(*value); },
      [value](const std::string& text) {
        return absl::SimpleAtoi(text, value) ? absl::OkStatus() : NotUnderstood(text);
      });
}

absl::Status TrainingState::AddValue(const std::string& name, bool* value) {
  return AddText(
      name, [value] { return *value ? "true" : "false"; },
      [value](const std::string& text) {
        return absl::SimpleAtob(text, value) ? absl::OkStatus() : NotUnderstood(text);
      });
}

absl::Status TrainingState::AddValue(const std::string& name, std::string* value) {
  return AddText(
      name, [value] { return *value; },
      [value](const std::string& text) {
        *value = text;
        return absl::OkStatus();
      });
}

absl::Status TrainingState::AddScheduler(torch::optim::LRScheduler& scheduler, const std::string& name) {
  unsigned& steps = StepsOf(scheduler);
  return AddObject(&scheduler, name,
                   {[&steps] { return absl::StrCat(steps); },
                    [&steps](const std::string& text) {
                      return absl::SimpleAtoi(text, &steps) ? absl::OkStatus() : NotUnderstood(text);
                    }});
}

absl::Status TrainingState::AddScaler(GradScaler& scaler, const std::string& name) {
  return AddObject(
      &scaler, name,
      {[&scaler] { return scaler.State(); }, [&scaler](const std::string& text) { return scaler.SetState(text); }});
}

absl::Status TrainingState::AddSampler(const DistributedSampler& sampler, const std::string& name) {
  // Copies share one state.
  auto shared = std::make_shared<DistributedSampler>(sampler);
  return AddText(
      name,
      [shared] {
        return SamplerText(shared->epoch(), shared->position() * shared->options().num_replicas,
                           shared->options().seed);
      },
      [shared](const std::string& text) {
        return LoadSampler(text, shared->options().seed, [&shared](int64_t epoch, int64_t position) {
          // With fewer or more ranks, a sample may be repeated, but none is left out.
          shared->set_epoch(epoch, position / shared->options().num_replicas);
          return absl::OkStatus();
        });
      });
}

absl::Status TrainingState::AddSampler(BatchSampler& sampler, const std::string& name) {
  return AddObject(&sampler, name,
                   {[&sampler] { return SamplerText(sampler.epoch(), sampler.position(), sampler.options().seed); },
                    [&sampler](const std::string& text) {
                      return LoadSampler(text, sampler.options().seed, [&sampler](int64_t epoch, int64_t position) {
                        // DistributedSampler counts the samples that it repeats at the end.
                        return sampler.Seek(epoch, std::min(position, sampler.length()));
                      });
                    }});
}

std::vector<c10::Device> TrainingState::Accelerators() const { return AcceleratorsOf(GetModuleState(module_).tensors); }

bool TrainingState::IsOn(const std::optional<c10::Device>& device) const {
  return device.has_value() && Accelerators() == std::vector<c10::Device>{*device};
}

absl::StatusOr<StateParts> TrainingState::Parts(std::map<std::string, std::string> metadata, NamedTensors extra) const {
  const ModuleState module = GetModuleState(module_);
  NamedTensors rest = std::move(extra);
  std::map<std::string, std::string> rest_metadata = metadata;
  if (optimizer_ != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(OptimizerState optimizer, GetOptimizerState(module, *optimizer_));
    rest.insert(rest.end(), optimizer.tensors.begin(), optimizer.tensors.end());
    rest_metadata[kOptimizerGroupsKey] = std::move(optimizer.groups);
  }
  for (const auto& [name, tensor] : tensors_) rest.emplace_back(absl::StrCat(kUserTensorPrefix, name), tensor);
  for (const auto& [name, text] : texts_) rest_metadata[absl::StrCat(kStateTextPrefix, name)] = text.save();
  metadata.insert(module.aliases.begin(), module.aliases.end());
  DDPRUN_ASSIGN_OR_RETURN(StatePart model_part, LayOut(module.tensors, std::move(metadata)));
  DDPRUN_ASSIGN_OR_RETURN(StatePart rest_part, LayOut(rest, std::move(rest_metadata)));
  StateParts parts{std::move(model_part), std::move(rest_part), {}};
  for (const auto& item : module_.named_parameters()) parts.parameters.push_back(item.key());
  return parts;
}

void TrainingState::Commit(Scope scope) {
  const at::NoGradGuard no_grad;
  if (committed_ == nullptr) committed_ = std::make_unique<Committed>();
  Committed& committed = *committed_;
  committed.scope = scope;
  for (const auto& item : module_.named_buffers()) {
    if (item.value().defined()) Keep(item.value(), &committed.buffers[item.key()]);
  }
  committed.zeroed.clear();
  for (const auto& item : module_.named_parameters()) {
    if (!item.value().defined()) continue;
    const at::Tensor& gradient = item.value().grad();
    at::Tensor& kept = committed.gradients[item.key()];
    if (gradient.defined() && scope != Scope::kStepFromZeroGradients) {
      Keep(gradient, &kept);
    } else {
      kept.reset();
      if (gradient.defined()) committed.zeroed.insert(item.key());
    }
  }
  committed.samples = Samples(module_);
  for (const auto& [name, tensor] : tensors_) Keep(tensor, &committed.tensors[name]);
  for (const auto& [name, text] : texts_) committed.texts[name] = text.save();
  committed.learning_rates.clear();
  if (optimizer_ != nullptr) {
    for (auto& group : optimizer_->param_groups()) committed.learning_rates.push_back(group.options().get_lr());
  }
  committed.random = GetRandomState(Accelerators());
  committed.everything.reset();
  if (scope != Scope::kEverything) return;
  absl::StatusOr<StateParts> parts = Parts();
  if (!parts.ok()) return;  // Rollback reports the error
  for (StatePart* const part : {&parts->model, &parts->rest}) {
    for (at::Tensor& tensor : part->tensors) tensor = tensor.detach().clone();
  }
  committed.everything = *std::move(parts);
}

absl::Status TrainingState::Rollback() {
  if (committed_ == nullptr) return absl::FailedPreconditionError("Rollback without a Commit before it");
  const Committed& committed = *committed_;
  const at::NoGradGuard no_grad;
  if (committed.scope == Scope::kEverything) {
    if (!committed.everything) return Parts().status();
    const StatePart& model = committed.everything->model;
    const StatePart& rest = committed.everything->rest;
    DDPRUN_ASSIGN_OR_RETURN(StateLoader loader, StateLoader::Create(*this, {"the committed state", &model.layout},
                                                                    {"the committed state", &rest.layout}, /*rank=*/0));
    for (size_t i = 0; i < model.tensors.size(); ++i) loader.SetModelTensor(i, model.tensors[i]);
    for (size_t i = 0; i < rest.tensors.size(); ++i) loader.SetRestTensor(i, rest.tensors[i]);
    DDPRUN_RETURN_IF_ERROR(loader.Install());
  } else {
    if (!SameSamples(committed.samples, Samples(module_))) {
      return absl::FailedPreconditionError(
          "parameters have changed since Commit: the optimizer's step had begun; commit after it, or commit "
          "Scope::kEverything to roll it back");
    }
    for (const auto& item : module_.named_buffers()) {
      const auto kept = committed.buffers.find(item.key());
      if (kept != committed.buffers.end()) item.value().copy_(kept->second);
    }
    for (auto& [name, tensor] : tensors_) tensor.copy_(committed.tensors.at(name));
    for (const auto& [name, text] : texts_) DDPRUN_RETURN_IF_ERROR(text.load(committed.texts.at(name)));
    for (size_t g = 0; g < committed.learning_rates.size(); ++g) {
      optimizer_->param_groups()[g].options().set_lr(committed.learning_rates[g]);
    }
  }
  for (auto& item : module_.named_parameters()) {
    const auto kept = committed.gradients.find(item.key());
    if (kept == committed.gradients.end()) continue;
    at::Tensor& gradient = item.value().mutable_grad();
    if (committed.zeroed.contains(item.key())) {
      if (gradient.defined()) gradient.zero_();
    } else if (!kept->second.defined()) {
      gradient.reset();
    } else if (gradient.defined()) {
      gradient.copy_(kept->second);  // in place: it may be a view of a bucket
    } else {
      gradient = kept->second.clone();
    }
  }
  SetRandomState(committed.random, Accelerators());
  return absl::OkStatus();
}

absl::Status TrainingState::Broadcast(ProcessGroup& group, int root, bool take) {
  const bool sends = group.rank() == root;
  StateParts parts;
  const auto agree = [&group](const absl::Status& mine) {
    return OutcomeOfAll(
        &group,
        mine.ok() ? mine : absl::Status(mine.code(), absl::StrCat("rank ", group.rank(), ": ", mine.message())));
  };
  absl::Status status = TorchTry("broadcast of the training state", [&]() -> absl::Status {
    if (!sends) return absl::OkStatus();
    absl::StatusOr<StateParts> mine = Parts();
    if (mine.ok()) parts = *std::move(mine);
    return mine.status();
  });
  if (status = agree(status); !status.ok()) return status;

  SentTensors model, rest;
  for (const auto& [sent, part] : {std::pair(&model, &parts.model), std::pair(&rest, &parts.rest)}) {
    sent->path = absl::StrCat("rank ", root, "'s state");
    sent->header = part->layout;
    const StatePart* const source = part;
    if (IsOn(group.nccl_device())) {
      for (const at::Tensor& tensor : part->tensors)
        sent->between_gpus += tensor.is_cuda() && tensor.numel() > 0 ? '1' : '0';
      sent->on_gpu = [source](size_t index) { return source->tensors[index].detach(); };
    }
    sent->read = [source](size_t index, char* to) {
      TensorOnBytes(source->layout.tensors[index], to).copy_(source->tensors[index].detach());
    };
    const absl::Status of_header = SendHeader(group, root, SafetensorsHeaderText(part->layout), sent);
    if (status.ok()) status = of_header;
  }
  std::optional<StateLoader> loader;
  PieceBuffers model_buffers, rest_buffers;
  const absl::Status headers = status;
  status = TorchTry("broadcast of the training state", [&]() -> absl::Status {
    if (!headers.ok()) return headers;
    model_buffers = BuffersFor(group, model);
    rest_buffers = BuffersFor(group, rest);
    if (sends || !take) return absl::OkStatus();
    absl::StatusOr<StateLoader> created =
        StateLoader::Create(*this, {model.path, &model.header}, {rest.path, &rest.header}, group.rank());
    if (created.ok()) loader = *std::move(created);
    return created.status();
  });
  if (status = agree(status); !status.ok()) return status;
  const at::NoGradGuard no_grad;
  status = VisitSent(group, root, model, model_buffers, [&](size_t index, const at::Tensor& value) {
    if (loader) loader->SetModelTensor(index, value);
  });
  const absl::Status of_rest = VisitSent(group, root, rest, rest_buffers, [&](size_t index, const at::Tensor& value) {
    if (loader) loader->SetRestTensor(index, value);
  });
  if (status.ok()) status = of_rest;
  if (status.ok() && loader) status = TorchTry("", [&] { return loader->Install(); });
  return agree(status);
}

absl::Status TrainingState::CheckSameOnAllRanks(ProcessGroup& group) const {
  std::map<std::string, uint64_t> mine;
  absl::Status status = TorchTry("comparing the training state", [&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(const StateParts parts, Parts());
    mine = Digest(parts);
    return absl::OkStatus();
  });
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, group.BroadcastText(json(mine).dump(-1, ' ', /*ensure_ascii=*/true,
                                                                                      json::error_handler_t::replace)));
  const auto root = json::parse(text).get<std::map<std::string, uint64_t>>();
  std::vector<std::string> differ, may_differ;
  for (const auto& [part, checksum] : mine) {
    const auto theirs = root.find(part);
    if (theirs != root.end() && theirs->second == checksum) continue;
    bool must = part == kParameters || part == kOptimizer;
    for (const auto& [name, added] : texts_) must |= added.same_on_all_ranks && part == InQuotes(name);
    (must ? differ : may_differ).push_back(part);
  }
  if (!differ.empty() && status.ok()) {
    status = absl::FailedPreconditionError(absl::StrCat(
        "the ranks' training states differ: ", absl::StrJoin(differ, ", "), " of rank ", group.rank(),
        " (compared with rank 0); everything that a step changes must be part of the TrainingState, and every rank "
        "must change it alike"));
  } else if (!may_differ.empty()) {
    std::fputs(absl::StrCat("ddprun: rank ", group.rank(), ": ", absl::StrJoin(may_differ, ", "),
                            " of the training state differ from rank 0's; workers that join have the values of the "
                            "rank that sends its state\n")
                   .c_str(),
               stderr);
  }
  return OutcomeOfAll(&group, status);
}

}  // namespace ddprun

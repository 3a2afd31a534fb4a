#include "worker_runtime/state/optimizer_state.h"

#include <ATen/Functions.h>
#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <typeinfo>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "worker_runtime/state/optimizer_kind.h"

namespace ddprun {
namespace {

using nlohmann::json;
using torch::optim::Optimizer;

constexpr char kArchive[] = "optimizer.archive";

// Names of the parameters of each group, in the group's order.
using GroupNames = std::vector<std::vector<std::string>>;

absl::StatusOr<GroupNames> NamesOfGroups(const ModuleState& module, Optimizer& optimizer) {
  std::map<const void*, std::string> names;
  for (const auto& [name, tensor] : module.tensors) names[tensor.unsafeGetTensorImpl()] = name;
  GroupNames groups;
  for (const auto& group : optimizer.param_groups()) {
    std::vector<std::string>& in_group = groups.emplace_back();
    for (const at::Tensor& parameter : group.params()) {
      const auto name = names.find(parameter.unsafeGetTensorImpl());
      if (name == names.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("parameter ", in_group.size(), " of the optimizer's group ", groups.size() - 1,
                         " is not a parameter of the module; checkpoints store optimizer state by parameter name"));
      }
      in_group.push_back(name->second);
    }
  }
  return groups;
}

// The kind of all groups; nullptr: the optimizer is stored as an archive.
const OptimizerKind* KindOf(Optimizer& optimizer) {
  const OptimizerKind* kind = nullptr;
  for (const auto& group : optimizer.param_groups()) {
    kind = group.has_options() ? OptimizerKind::For(group.options()) : nullptr;
    if (kind == nullptr) break;
  }
  return kind;
}

// "torch::optim::RMSprop"
std::string ClassOf(const Optimizer& optimizer) { return c10::demangle(typeid(optimizer).name()); }

absl::StatusOr<OptimizerState> Archive(const Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  const std::string bytes = stream.str();
  torch::serialize::InputArchive check;
  check.load_from(bytes.data(), bytes.size());
  if (check.keys().empty()) {
    return absl::UnimplementedError(absl::StrCat("the optimizer's class, ", ClassOf(optimizer),
                                                 ", does not implement save() and load() of torch::optim::Optimizer"));
  }
  OptimizerState state;
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  state.tensors.emplace_back(kArchive, std::move(tensor));
  state.groups = json{{"kind", ClassOf(optimizer)}}.dump();
  return state;
}

absl::Status Misfit(absl::string_view file, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file, " does not match the optimizer: ", what));
}

// Checks that the groups of a checkpoint can be applied to an optimizer with `names`.
absl::Status CheckGroups(absl::string_view file, const OptimizerKind& kind, const GroupNames& names, const json& said) {
  const absl::Status damaged =
      absl::DataLossError(absl::StrCat(file, " is damaged: its optimizer groups are not valid JSON"));
  if (!said.is_object() || !said.contains("groups") || !said["groups"].is_array()) return damaged;
  const json& groups = said["groups"];
  if (groups.size() != names.size()) {
    return Misfit(
        file, absl::StrCat("it has ", Counted(groups.size(), "parameter group"), ", the optimizer has ", names.size()));
  }
  for (size_t g = 0; g < names.size(); ++g) {
    if (!groups[g].is_object() || !kind.options_from_json(groups[g], nullptr)) return damaged;
    if (!groups[g].contains("params") || !groups[g]["params"].is_array()) return damaged;
    std::vector<std::string> there;
    for (const json& name : groups[g]["params"]) {
      if (!name.is_string()) return damaged;
      there.push_back(name.get<std::string>());
    }
    std::vector<std::string> here = names[g];
    std::sort(there.begin(), there.end());
    std::sort(here.begin(), here.end());
    std::vector<std::string> differing;
    std::set_symmetric_difference(there.begin(), there.end(), here.begin(), here.end(), std::back_inserter(differing));
    if (!differing.empty()) {
      return Misfit(file,
                    absl::StrCat("the parameters of group ", g, " differ: ", OneLine(differing.front(), 120),
                                 differing.size() > 1 ? absl::StrCat(" and ", differing.size() - 1, " more") : ""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OptimizerState> GetOptimizerState(const ModuleState& module, Optimizer& optimizer) {
  const OptimizerKind* const kind = KindOf(optimizer);
  if (kind == nullptr) return Archive(optimizer);
  const absl::StatusOr<GroupNames> names = NamesOfGroups(module, optimizer);
  if (!names.ok()) return names.status();
  OptimizerState state;
  // LibTorch's parameters() contains a tied parameter once for each of its names.
  std::set<std::string> seen;
  json groups = json::array();
  for (size_t g = 0; g < names->size(); ++g) {
    auto& group = optimizer.param_groups()[g];
    json described = kind->options_to_json(group.options());
    described["params"] = (*names)[g];
    groups.push_back(std::move(described));
    for (size_t p = 0; p < group.params().size(); ++p) {
      const auto found = optimizer.state().find(group.params()[p].unsafeGetTensorImpl());
      if (found == optimizer.state().end() || !seen.insert((*names)[g][p]).second) continue;
      for (const OptimizerKind::Field& field : kind->fields) {
        at::Tensor value = field.get(*found->second);
        const std::string name = absl::StrCat(kOptimizerStatePrefix, (*names)[g][p], ".", field.name);
        if (value.defined()) state.tensors.emplace_back(name, std::move(value));
      }
    }
  }
  const json all = {{"kind", kind->name}, {"groups", std::move(groups)}};
  state.groups = all.dump(-1, ' ', false, json::error_handler_t::replace);
  return state;
}

absl::StatusOr<OptimizerStateLoader> OptimizerStateLoader::Create(absl::string_view file, const ModuleState& module,
                                                                  Optimizer& optimizer, const SafetensorsHeader& header,
                                                                  const std::string& groups) {
  const OptimizerKind* const kind = KindOf(optimizer);
  const json said = json::parse(groups, nullptr, /*allow_exceptions=*/false);
  if (!said.is_object() || !said.contains("kind") || !said["kind"].is_string()) {
    return absl::DataLossError(absl::StrCat(file, " is damaged: its optimizer groups are not valid JSON"));
  }
  const std::string here = kind != nullptr ? kind->name : ClassOf(optimizer);
  if (said["kind"] != here) {
    const std::string other = OneLine(said["kind"].get_ref<const std::string&>(), 80);
    return Misfit(file, absl::StrCat("saved from ", other, ", but this is ", here));
  }
  if (kind == nullptr) {
    if (header.Find(kArchive) != nullptr) return OptimizerStateLoader(optimizer);
    return absl::DataLossError(absl::StrCat(file, " is damaged: the optimizer's archive is missing"));
  }
  const absl::StatusOr<GroupNames> names = NamesOfGroups(module, optimizer);
  if (!names.ok()) return names.status();
  if (absl::Status status = CheckGroups(file, *kind, *names, said); !status.ok()) return status;

  std::map<absl::string_view, at::Tensor> parameters;
  for (size_t g = 0; g < names->size(); ++g) {
    for (size_t p = 0; p < (*names)[g].size(); ++p)
      parameters[(*names)[g][p]] = optimizer.param_groups()[g].params()[p];
  }
  OptimizerStateLoader loader(optimizer);
  loader.groups_ = groups;
  for (const SafetensorsTensor& tensor : header.tensors) {
    absl::string_view name = tensor.name;
    if (!absl::ConsumePrefix(&name, kOptimizerStatePrefix)) continue;
    const size_t dot = name.rfind('.');
    const auto parameter = parameters.find(name.substr(0, dot));
    const OptimizerKind::Field* field = nullptr;
    if (dot != absl::string_view::npos) field = kind->Find(std::string(name.substr(dot + 1)));
    if (parameter == parameters.end() || field == nullptr) {
      return Misfit(file, absl::StrCat("unexpected tensor ", OneLine(tensor.name, 160)));
    }
    const std::vector<int64_t> shape = field->scalar ? std::vector<int64_t>() : parameter->second.sizes().vec();
    if (tensor.shape != shape) {
      return Misfit(file, absl::StrCat(OneLine(tensor.name, 160), " has shape ", ShapeText(tensor.shape),
                                       " instead of ", ShapeText(shape)));
    }
    loader.slots_[tensor.name] = Slot{parameter->second, field->name, at::Tensor()};
  }
  return loader;
}

bool OptimizerStateLoader::Take(const std::string& name, const at::Tensor& value) {
  if (name == kArchive) archive_ = value.to(c10::DeviceType::CPU, at::kByte, false, /*copy=*/true);
  const auto slot = slots_.find(name);
  if (slot == slots_.end()) return archive_.defined() && name == kArchive;
  slot->second.value = value.to(slot->second.parameter.device(), value.scalar_type(), false, /*copy=*/true);
  return true;
}

void OptimizerStateLoader::Install() {
  if (archive_.defined()) {
    torch::serialize::InputArchive archive;
    archive.load_from(static_cast<const char*>(archive_.const_data_ptr()), archive_.nbytes());
    optimizer_->load(archive);
    return;
  }
  const OptimizerKind& kind = *KindOf(*optimizer_);
  const json said = json::parse(groups_, nullptr, /*allow_exceptions=*/false);
  for (size_t g = 0; g < optimizer_->param_groups().size(); ++g) {
    kind.options_from_json(said["groups"][g], &optimizer_->param_groups()[g].options());
  }
  optimizer_->state().clear();
  for (auto& [name, slot] : slots_) {
    auto& state = optimizer_->state()[slot.parameter.unsafeGetTensorImpl()];
    if (state == nullptr) state = kind.make_state();
    kind.Find(slot.field)->set(*state, slot.value);
  }
}

}  // namespace ddprun

#include "worker_runtime/state/optimizer_state.h"

#include <ATen/Functions.h>
#include <c10/util/Type.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>
#include <typeinfo>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun {
namespace {

using nlohmann::json;
using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;

constexpr char kArchive[] = "optimizer.archive";

// ---- the kinds of optimizers that are stored by name ----

// State of one parameter, as in Python's state_dict. LibTorch's accessors are pairs of members of the same name.
struct Field {
  std::string name;
  // Undefined if the parameter has no such value.
  std::function<at::Tensor(const OptimizerParamState&)> get;
  std::function<void(OptimizerParamState&, const at::Tensor&)> set;
  bool scalar = false;  // otherwise it has the parameter's shape
};

// Option of one parameter group, as in Python's param_groups.
struct Option {
  const char* name;
  std::function<json(const OptimizerOptions&)> get;
  std::function<bool(const json&)> fits;  // true if the value has this option's type
  std::function<void(OptimizerOptions&, const json&)> set;
};

// Accessors for the state and options of one kind of optimizer through its base classes. Stateless; thread-safe.
struct OptimizerKind {
  std::string name;  // "AdamW"
  std::vector<Field> fields;
  std::vector<Option> options;
  std::function<std::unique_ptr<OptimizerParamState>()> make_state;
  std::function<bool(const OptimizerOptions&)> is_for;

  const Field* Find(absl::string_view field) const {
    const auto found = absl::c_find_if(fields, [&](const Field& known) { return known.name == field; });
    return found == fields.end() ? nullptr : &*found;
  }
  // {"lr": 0.001, "betas": [0.9, 0.999], ...}
  json OptionsToJson(const OptimizerOptions& from) const {
    json object;
    for (const Option& option : options) object[option.name] = option.get(from);
    return object;
  }
  // False if the JSON lacks an option or has a value of another type.
  bool Fits(const json& from) const {
    return absl::c_all_of(
        options, [&](const Option& option) { return from.contains(option.name) && option.fits(from[option.name]); });
  }
  // REQUIRES: Fits(from).
  void SetOptions(const json& from, OptimizerOptions& to) const {
    for (const Option& option : options) option.set(to, from[option.name]);
  }
};

// A moment.
template <typename State>
Field TensorField(const char* name, const at::Tensor& (State::*get)() const, at::Tensor& (State::*get_mutable)()) {
  return {.name = name,
          .get = [get](const OptimizerParamState& state) { return (static_cast<const State&>(state).*get)(); },
          .set = [get_mutable](OptimizerParamState& state,
                               const at::Tensor& value) { (static_cast<State&>(state).*get_mutable)() = value; }};
}

// Python stores the number of steps as a float32 tensor, which is exact up to 2^24; beyond that, the bias correction
// computed from it is 1.
template <typename State>
Field StepField() {
  return {.name = "step",
          .get =
              [](const OptimizerParamState& state) {
                return at::scalar_tensor(static_cast<const State&>(state).step(), at::kFloat);
              },
          .set =
              [](OptimizerParamState& state, const at::Tensor& value) {
                static_cast<State&>(state).step(static_cast<int64_t>(value.item<double>()));
              },
          .scalar = true};
}

using Betas = std::tuple<double, double>;
bool FitsType(const json& value, const double*) { return value.is_number(); }
bool FitsType(const json& value, const bool*) { return value.is_boolean(); }
bool FitsType(const json& value, const Betas*) {
  return value.is_array() && value.size() == 2 && value[0].is_number() && value[1].is_number();
}

template <typename Options, typename Value>
Option MakeOption(const char* name, const Value& (Options::*get)() const, Value& (Options::*get_mutable)()) {
  return {
      .name = name,
      .get = [get](const OptimizerOptions& options) -> json { return (static_cast<const Options&>(options).*get)(); },
      .fits = [](const json& value) { return FitsType(value, static_cast<const Value*>(nullptr)); },
      .set = [get_mutable](
                 OptimizerOptions& options,
                 const json& value) { (static_cast<Options&>(options).*get_mutable)() = value.get<Value>(); }};
}

template <typename Options, typename State>
OptimizerKind MakeKind(const char* name, std::vector<Field> fields, std::vector<Option> options) {
  return {.name = name,
          .fields = std::move(fields),
          .options = std::move(options),
          .make_state = [] { return std::make_unique<State>(); },
          .is_for = [](const OptimizerOptions& any) { return dynamic_cast<const Options*>(&any) != nullptr; }};
}

template <typename O, typename S>
OptimizerKind AdamKind(const char* name) {
  return MakeKind<O, S>(
      name,
      {StepField<S>(), TensorField<S>("exp_avg", &S::exp_avg, &S::exp_avg),
       TensorField<S>("exp_avg_sq", &S::exp_avg_sq, &S::exp_avg_sq),
       TensorField<S>("max_exp_avg_sq", &S::max_exp_avg_sq, &S::max_exp_avg_sq)},
      {MakeOption<O, double>("lr", &O::lr, &O::lr), MakeOption<O, Betas>("betas", &O::betas, &O::betas),
       MakeOption<O, double>("eps", &O::eps, &O::eps),
       MakeOption<O, double>("weight_decay", &O::weight_decay, &O::weight_decay),
       MakeOption<O, bool>("amsgrad", &O::amsgrad, &O::amsgrad)});
}

OptimizerKind SgdKind() {
  using O = torch::optim::SGDOptions;
  using S = torch::optim::SGDParamState;
  return MakeKind<O, S>(
      "SGD", {TensorField<S>("momentum_buffer", &S::momentum_buffer, &S::momentum_buffer)},
      {MakeOption<O, double>("lr", &O::lr, &O::lr), MakeOption<O, double>("momentum", &O::momentum, &O::momentum),
       MakeOption<O, double>("dampening", &O::dampening, &O::dampening),
       MakeOption<O, double>("weight_decay", &O::weight_decay, &O::weight_decay),
       MakeOption<O, bool>("nesterov", &O::nesterov, &O::nesterov)});
}

// Returns the kind to which these options belong; nullptr: unsupported.
const OptimizerKind* KindOf(const OptimizerOptions& options) {
  static const std::vector<OptimizerKind>* const kinds = new std::vector<OptimizerKind>{
      SgdKind(), AdamKind<torch::optim::AdamOptions, torch::optim::AdamParamState>("Adam"),
      AdamKind<torch::optim::AdamWOptions, torch::optim::AdamWParamState>("AdamW")};
  for (const OptimizerKind& kind : *kinds) {
    if (kind.is_for(options)) return &kind;
  }
  return nullptr;
}

// ---- groups ----

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
    kind = group.has_options() ? KindOf(group.options()) : nullptr;
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
    if (!groups[g].is_object() || !kind.Fits(groups[g])) return damaged;
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
  DDPRUN_ASSIGN_OR_RETURN(const GroupNames names, NamesOfGroups(module, optimizer));
  OptimizerState state;
  // LibTorch's parameters() contains a tied parameter once for each of its names.
  std::set<std::string> seen;
  json groups = json::array();
  for (size_t g = 0; g < names.size(); ++g) {
    auto& group = optimizer.param_groups()[g];
    json described = kind->OptionsToJson(group.options());
    described["params"] = names[g];
    groups.push_back(std::move(described));
    for (size_t p = 0; p < group.params().size(); ++p) {
      const auto found = optimizer.state().find(group.params()[p].unsafeGetTensorImpl());
      if (found == optimizer.state().end() || !seen.insert(names[g][p]).second) continue;
      for (const Field& field : kind->fields) {
        at::Tensor value = field.get(*found->second);
        const std::string name = absl::StrCat(kOptimizerStatePrefix, names[g][p], ".", field.name);
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
  DDPRUN_ASSIGN_OR_RETURN(const GroupNames names, NamesOfGroups(module, optimizer));
  DDPRUN_RETURN_IF_ERROR(CheckGroups(file, *kind, names, said));

  std::map<absl::string_view, at::Tensor> parameters;
  for (size_t g = 0; g < names.size(); ++g) {
    for (size_t p = 0; p < names[g].size(); ++p) parameters[names[g][p]] = optimizer.param_groups()[g].params()[p];
  }
  OptimizerStateLoader loader(optimizer);
  loader.groups_ = groups;
  for (const SafetensorsTensor& tensor : header.tensors) {
    absl::string_view name = tensor.name;
    if (!absl::ConsumePrefix(&name, kOptimizerStatePrefix)) continue;
    const size_t dot = name.rfind('.');
    const auto parameter = parameters.find(name.substr(0, dot));
    const Field* field = nullptr;
    if (dot != absl::string_view::npos) field = kind->Find(name.substr(dot + 1));
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
    kind.SetOptions(said["groups"][g], optimizer_->param_groups()[g].options());
  }
  optimizer_->state().clear();
  for (auto& [name, slot] : slots_) {
    auto& state = optimizer_->state()[slot.parameter.unsafeGetTensorImpl()];
    if (state == nullptr) state = kind.make_state();
    kind.Find(slot.field)->set(*state, slot.value);
  }
}

}  // namespace ddprun

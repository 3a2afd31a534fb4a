#include "worker_runtime/checkpoint/tensors_file.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/safetensors/file_system.h"
#include "worker_runtime/safetensors/safetensors_file.h"
#include "worker_runtime/state/module_state.h"
#include "worker_runtime/state/state_match.h"

namespace ddprun {
namespace {

// A tensor in the mapping, which it keeps alive.
at::Tensor MappedTensor(const std::shared_ptr<SafetensorsFile>& file, const SafetensorsTensor& tensor) {
  const absl::string_view bytes = file->bytes(tensor);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % SafetensorsDtypeBytes(tensor.dtype) != 0) {
    return ReadableTensor(tensor, bytes);
  }
  return at::from_blob(
      file->mutable_bytes(tensor), tensor.shape, [file](void*) {},
      at::TensorOptions().dtype(ToScalarType(tensor.dtype)));
}

absl::StatusOr<LoadedTensors> Load(const std::string& path, c10::Device device) {
  DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  LoadedTensors loaded;
  loaded.metadata = file->header().metadata;
  loaded.checked = file->seal().has_value();
  const std::vector<SafetensorsTensor>& tensors = file->header().tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    DDPRUN_RETURN_IF_ERROR(file->CheckTensor(i));
    DDPRUN_RETURN_IF_ERROR(CheckValues(path, tensors[i], file->bytes(tensors[i])));
    loaded.tensors.emplace(tensors[i].name, MappedTensor(file, tensors[i]).to(device));
  }
  return loaded;
}

absl::Status LoadInto(const std::string& path, torch::nn::Module& module) {
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  const ModuleState state = GetModuleState(module);
  const SafetensorsHeader& header = file->header();
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::vector<size_t>> match, MatchState(path, state.Targets(), header));
  // Before the first value is set, so that a damaged file leaves the module unchanged.
  DDPRUN_RETURN_IF_ERROR(file->CheckAll());
  for (const SafetensorsTensor& tensor : header.tensors) {
    DDPRUN_RETURN_IF_ERROR(CheckValues(path, tensor, file->bytes(tensor)));
  }
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const at::Tensor value = ReadableTensor(header.tensors[i], file->bytes(header.tensors[i]));
    for (const size_t target : match[i]) at::Tensor(state.tensors[target].second).copy_(value);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveTensors(const NamedTensors& tensors, const std::string& path,
                         const std::map<std::string, std::string>& metadata) {
  return TorchTry("", [&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(std::vector<SafetensorsTensor> described, DescribeTensors(tensors));
    std::map<std::string, std::string> said = metadata;
    said.emplace("format", "pt");  // required by Hugging Face tools
    DDPRUN_ASSIGN_OR_RETURN(SafetensorsHeader layout, LayOutSafetensors(std::move(described), std::move(said)));
    std::map<absl::string_view, const at::Tensor*> by_name;
    for (const auto& [name, tensor] : tensors) by_name[name] = &tensor;
    std::vector<at::Tensor> hosts;
    std::vector<absl::string_view> bytes;
    for (const SafetensorsTensor& tensor : layout.tensors) {
      hosts.push_back(ToHost(*by_name[tensor.name]));
      bytes.push_back(HostBytes(hosts.back()));
    }
    return WriteSafetensors(path, layout, bytes, FileSystem::Real());
  });
}

absl::StatusOr<LoadedTensors> LoadTensors(const std::string& path, c10::Device device) {
  absl::StatusOr<LoadedTensors> loaded;
  DDPRUN_RETURN_IF_ERROR(TorchTry("", [&] {
    loaded = Load(path, device);
    return loaded.status();
  }));
  return loaded;
}

absl::Status SaveModule(const torch::nn::Module& module, const std::string& path,
                        const std::map<std::string, std::string>& metadata) {
  const ModuleState state = GetModuleState(module);
  std::map<std::string, std::string> said = metadata;
  said.insert(state.aliases.begin(), state.aliases.end());
  return SaveTensors(state.tensors, path, said);
}

absl::Status LoadModule(const std::string& path, torch::nn::Module& module) {
  return TorchTry("", [&] { return LoadInto(path, module); });
}

}  // namespace ddprun

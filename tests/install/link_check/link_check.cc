// Prints the libraries of LibTorch and CUDA that a trainer has loaded after its first collective, and whether LibTorch
// was built with CUDA.
#include <ATen/Context.h>
#include <ATen/ops/ones.h>

#include <fstream>
#include <iostream>
#include <set>
#include <string>

#include "worker_runtime/worker.h"

int main() {
  ddprun::RunWorker({}, [](ddprun::Worker& worker) -> absl::Status {
    if (absl::Status formed = worker.InitProcessGroup(); !formed.ok()) return formed;
    const at::Tensor sum = at::ones({2});
    if (absl::Status done = worker.group()->AllReduce(sum); !done.ok()) return done;
    std::set<std::string> loaded;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (const size_t slash = line.rfind('/'); slash != std::string::npos) loaded.insert(line.substr(slash + 1));
    }
    for (const std::string& name : loaded) std::cout << "loaded " << name << "\n";
    // Needs no GPU: the interface of a LibTorch without CUDA throws.
    try {
      std::cout << "CUDA " << at::detail::getCUDAHooks().versionCUDART() << "\n";
    } catch (const c10::Error&) {
      std::cout << "no CUDA\n";
    }
    std::cout << "sum " << sum.sum().item<float>() << "\n";
    return absl::OkStatus();
  });
}

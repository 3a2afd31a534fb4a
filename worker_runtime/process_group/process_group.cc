#include "worker_runtime/process_group/process_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/mutex.h"
#include "worker_runtime/base/torch_try.h"

namespace ddprun {
namespace {

constexpr int64_t kMaxTextBytes = 64 << 20;

std::chrono::milliseconds Milliseconds(absl::Duration duration) {
  return std::chrono::milliseconds(absl::ToInt64Milliseconds(duration));
}

c10d::ReduceOp ToC10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return c10d::ReduceOp::SUM;
    case ReduceOp::kAverage: return c10d::ReduceOp::AVG;
    case ReduceOp::kMin: return c10d::ReduceOp::MIN;
    case ReduceOp::kMax: return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct: return c10d::ReduceOp::PRODUCT;
  }
  return c10d::ReduceOp::SUM;
}

}  // namespace

class ProcessGroup::Impl {
 public:
  int rank = 0;
  int size = 1;
  std::string name;
  std::string backend;
  ProcessGroupOptions options;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  Mutex mutex;
  std::string abort_reason ABSL_GUARDED_BY(mutex);
};

ProcessGroup::ProcessGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::rank() const { return impl_->rank; }
int ProcessGroup::size() const { return impl_->size; }
const std::string& ProcessGroup::name() const { return impl_->name; }
const std::string& ProcessGroup::backend() const { return impl_->backend; }
absl::Duration ProcessGroup::timeout() const { return impl_->options.timeout; }
const c10::intrusive_ptr<c10d::ProcessGroup>& ProcessGroup::c10d() const { return impl_->group; }
const c10::intrusive_ptr<c10d::Store>& ProcessGroup::store() const { return impl_->store; }

absl::StatusOr<std::shared_ptr<ProcessGroup>> ProcessGroup::Create(const WorkerEnv& env, ProcessGroupOptions options) {
  static std::atomic<int> created = 0;
  const int number = created++;
  c10::intrusive_ptr<c10d::Store> store;
  if (absl::Status status = TorchTry("connecting to the store",
                                     [&] {
                                       if (env.world_size == 1) {
                                         store = c10::make_intrusive<c10d::HashStore>();
                                         return absl::OkStatus();
                                       }
                                       c10d::TCPStoreOptions tcp;
                                       tcp.port = env.master_port;
                                       tcp.isServer = env.rank == 0 && !env.agent_store;
                                       tcp.waitWorkers = false;
                                       tcp.multiTenant = true;
                                       tcp.timeout = Milliseconds(options.timeout);
                                       store = c10::make_intrusive<c10d::TCPStore>(env.master_addr, tcp);
                                       return absl::OkStatus();
                                     });
      !status.ok()) {
    return status;
  }
  return CreateWithStore(store, absl::StrCat("ddprun/", env.round, "/", env.restart_count, "/", number), env.rank,
                         env.world_size, std::move(options));
}

absl::StatusOr<std::shared_ptr<ProcessGroup>> ProcessGroup::CreateWithStore(c10::intrusive_ptr<c10d::Store> store,
                                                                            const std::string& name, int rank, int size,
                                                                            ProcessGroupOptions options) {
  auto impl = std::make_unique<Impl>();
  impl->rank = rank;
  impl->size = size;
  impl->name = name;
  impl->backend = "gloo";
  impl->options = options;
  absl::Status status = TorchTry(absl::StrCat("rank ", rank, ": creating process group ", name), [&] {
    impl->store = c10::make_intrusive<c10d::PrefixStore>(name, store);
    auto gloo_options = c10d::ProcessGroupGloo::Options::create(Milliseconds(options.timeout));
    gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("cpu", impl->store),
                                                            rank, size, gloo_options);
    impl->group = c10::make_intrusive<c10d::ProcessGroup>(impl->store, rank, size);
    impl->group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO,
                            c10::intrusive_ptr<c10d::Backend>(gloo));
    impl->group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    impl->group->setGroupName(name);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(impl)));
}

absl::StatusOr<std::shared_ptr<ProcessGroup>> ProcessGroup::NewSubgroup(absl::Span<const int> ranks,
                                                                        const std::string& name,
                                                                        std::optional<ProcessGroupOptions> options) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != rank()) continue;
    return CreateWithStore(store(), absl::StrCat("sub/", name), static_cast<int>(i), static_cast<int>(ranks.size()),
                           options.value_or(impl_->options));
  }
  return nullptr;
}

absl::Status ProcessGroup::Try(absl::string_view operation, absl::FunctionRef<absl::Status()> body) {
  absl::Status returned;
  absl::Status thrown = TorchTry(absl::StrCat("rank ", rank(), ": ", operation), [&] {
    returned = body();
    return absl::OkStatus();
  });
  return thrown.ok() ? returned : thrown;
}

absl::Status ProcessGroup::Barrier(std::optional<absl::Duration> timeout) {
  return Try("barrier", [&] {
    c10d::BarrierOptions options;
    if (timeout.has_value()) options.timeout = Milliseconds(*timeout);
    c10d()->barrier(options)->wait();
    return absl::OkStatus();
  });
}

absl::Status ProcessGroup::AllReduce(at::Tensor tensor, ReduceOp op) {
  return Try("all_reduce", [&] {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    const bool divide = op == ReduceOp::kAverage && tensor.device().is_cpu();
    options.reduceOp = ToC10d(divide ? ReduceOp::kSum : op);
    c10d()->allreduce(tensors, options)->wait();
    if (divide) tensor.div_(size());
    return absl::OkStatus();
  });
}

absl::Status ProcessGroup::Broadcast(at::Tensor tensor, int root) {
  return Try("broadcast", [&] {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    c10d()->broadcast(tensors, options)->wait();
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<at::Tensor>> ProcessGroup::AllGather(const at::Tensor& tensor) {
  std::vector<std::vector<at::Tensor>> outputs(1);
  absl::Status status = Try("all_gather", [&] {
    for (int i = 0; i < size(); ++i) outputs[0].push_back(at::empty_like(tensor));
    std::vector<at::Tensor> inputs = {tensor};
    c10d()->allgather(outputs, inputs)->wait();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return outputs[0];
}

absl::StatusOr<std::string> ProcessGroup::BroadcastText(std::string text, int root) {
  at::Tensor length = at::empty({1}, at::kLong);
  length.data_ptr<int64_t>()[0] = static_cast<int64_t>(text.size());
  if (absl::Status status = Broadcast(length, root); !status.ok()) return status;
  const int64_t bytes = length.data_ptr<int64_t>()[0];
  if (bytes > kMaxTextBytes) return absl::InvalidArgumentError("text is too long");
  at::Tensor buffer = at::empty({bytes}, at::kByte);
  if (rank() == root) std::memcpy(buffer.data_ptr(), text.data(), text.size());
  if (bytes > 0) {
    if (absl::Status status = Broadcast(buffer, root); !status.ok()) return status;
  }
  return std::string(static_cast<const char*>(buffer.data_ptr()), bytes);
}

void ProcessGroup::Abort(absl::string_view reason) {
  MutexLock lock(&impl_->mutex);
  if (impl_->abort_reason.empty()) impl_->abort_reason = std::string(reason);
}

absl::Status ProcessGroup::Shutdown() {
  absl::Status status = Barrier();
  impl_->group.reset();
  return status;
}

}  // namespace ddprun

#include "worker_runtime/process_group/process_group.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <net/if.h>
#include <signal.h>
#include <stdlib.h>
#include <torch/csrc/distributed/c10d/debug.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <typeinfo>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mutex.h"
#include "worker_contract/environment.h"
#include "worker_runtime/base/non_restartable.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/process_group/cancellable.h"
#include "worker_runtime/process_group/interruptible_store.h"
#include "worker_runtime/process_group/meeting.h"
#include "worker_runtime/process_group/nccl_store.h"
#include "worker_runtime/process_group/process_group_impl.h"

namespace ddprun {
namespace {

using Backends = c10d::ProcessGroup::BackendType;

constexpr absl::Duration kLongestTimeout = absl::Hours(24 * 365);

class WarningsToStderr : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    const c10::SourceLocation& at = warning.source_location();
    std::fputs(
        absl::StrCat("[W ", at.file, ":", at.line, "] Warning: ", warning.msg(), " (function ", at.function, ")\n")
            .c_str(),
        stderr);
  }
};

// Keeps warnings visible: LibTorch's own handler, one per thread, prints through the log that PrepareProcess makes
// quieter.
void KeepWarnings() {
  static auto* const handler = new WarningsToStderr;
  if (getenv("TORCH_CPP_LOG_LEVEL") != nullptr) return;
  const c10::WarningHandler& present = *c10::WarningUtils::get_warning_handler();
  if (typeid(present) != typeid(c10::WarningHandler)) return;
  c10::WarningUtils::set_warning_handler(handler);
}

// Does what Python does on import of torch.distributed, and ignores SIGPIPE, as Gloo writes to connections that the
// peer may have closed. Error: InvalidArgument: a value of TORCH_DISTRIBUTED_DEBUG that does not exist.
absl::Status PrepareProcess() {
  KeepWarnings();
  static const absl::Status level = TorchTry("", [] {
    c10d::setDebugLevelFromEnvironment();
    return absl::OkStatus();
  });
  static std::once_flag once;
  std::call_once(once, [] {
    // LibTorch's flight recorder, one per process, keeps the groups' states in a map without a lock: it crashes if
    // several threads use groups (seen with 2.11). Users who want it set the variable.
    setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
    // When a connection is lost, c10d's store prints its C++ stack as a warning, in addition to the exception that we
    // report. KeepWarnings still prints TORCH_WARN.
    constexpr int kErrors = 2;
    if (getenv("TORCH_CPP_LOG_LEVEL") == nullptr) {
      FLAGS_caffe2_log_level = kErrors;
    } else {
      c10::initLogging();
    }
    struct sigaction action = {};
    if (sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) signal(SIGPIPE, SIG_IGN);
  });
  return NonRestartable(level);
}

std::string WhereToListen(const ProcessGroupOptions& options, const c10::intrusive_ptr<c10d::Store>& store,
                          bool several_hosts) {
  if (!options.interface.empty()) return options.interface;
  const char* const names = getenv(worker_contract::kGlooInterface);
  if (names != nullptr && *names != '\0') {
    for (const absl::string_view name : absl::StrSplit(names, ',', absl::SkipEmpty())) {
      const std::string interface(absl::StripAsciiWhitespace(name));
      if (if_nametoindex(interface.c_str()) != 0) return interface;
    }
    return names;
  }
  return AddressForPeers(store, several_hosts);
}

absl::Status CheckOptions(int rank, int size, const ProcessGroupOptions& options) {
  if (size < 1 || rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of ", size, ": must be from 0 to ", size - 1));
  }
  if (options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("the timeout of a process group must be positive");
  }
  return absl::OkStatus();
}

absl::Status CreationCancelled(int rank) {
  return absl::CancelledError(absl::StrCat("rank ", rank, ": the creation of the process group was cancelled"));
}

// Returns the number of groups that this process has already created for this round. The count restarts in each round,
// so that a process that lives through several rounds agrees with those started for this one.
int CountGroup(const std::string& round) {
  static Mutex* const mutex = new Mutex;
  static auto* const last_round = new std::string;
  static int made = 0;
  MutexLock lock(mutex);
  if (*last_round != round) made = 0;
  *last_round = round;
  return made++;
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ProcessGroup::~ProcessGroup() { impl_->Leave(); }

int ProcessGroup::rank() const { return impl_->rank; }
int ProcessGroup::size() const { return impl_->size; }
const std::string& ProcessGroup::name() const { return impl_->name; }
const std::string& ProcessGroup::backend() const { return impl_->backend_text; }
absl::Duration ProcessGroup::timeout() const { return impl_->options.timeout; }
c10::Device ProcessGroup::device() const { return impl_->device; }
absl::Status ProcessGroup::ConnectNccl() { return impl_->ConnectNccl(); }
std::optional<c10::Device> ProcessGroup::nccl_device() const {
  return impl_->bound_to_gpu ? std::optional(impl_->cuda_device) : std::nullopt;
}
const c10::intrusive_ptr<c10d::ProcessGroup>& ProcessGroup::c10d() const { return impl_->group; }
const c10::intrusive_ptr<c10d::Store>& ProcessGroup::store() const { return impl_->store; }

absl::StatusOr<std::shared_ptr<ProcessGroup>> ProcessGroup::Create(const WorkerEnv& env, ProcessGroupOptions options) {
  if (absl::Status status = CheckOptions(env.rank, env.world_size, options); !status.ok()) return status;
  if (absl::Status status = PrepareProcess(); !status.ok()) return status;
  options.timeout = std::min(options.timeout, kLongestTimeout);
  absl::StatusOr<c10::intrusive_ptr<c10d::Store>> store = ConnectToStore(env, options.timeout, options.cancel);
  if (!store.ok() && options.cancel.stop_requested()) return CreationCancelled(env.rank);
  if (!store.ok()) return store.status();
  auto impl = std::make_unique<Impl>();
  impl->rank = env.rank;
  impl->size = env.world_size;
  impl->local_rank = env.local_rank;
  impl->name = "default_pg";
  impl->store_on_rank_0 = env.world_size > 1 && !env.agent_store;
  impl->several_hosts = env.local_world_size < env.world_size;
  impl->options = std::move(options);
  const std::string round = absl::StrCat("ddprun/", env.run_id, "/", env.round, "/", env.restart_count);
  const std::string number =
      impl->options.attempt.has_value()
          ? absl::StrCat("attempt/", *impl->options.attempt)
          : absl::StrCat(CountGroup(absl::StrCat(env.master_addr, ":", env.master_port, "/", round)));
  absl::Status status = impl->Form(
      c10::make_intrusive<InterruptibleStore>(absl::StrCat(round, "/", number), *store, impl->options.cancel), number);
  if (!status.ok()) return status;
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(impl)));
}

absl::StatusOr<std::shared_ptr<ProcessGroup>> ProcessGroup::CreateWithStore(c10::intrusive_ptr<c10d::Store> store,
                                                                            const std::string& name, int rank, int size,
                                                                            ProcessGroupOptions options) {
  if (absl::Status status = CheckOptions(rank, size, options); !status.ok()) return status;
  if (absl::Status status = PrepareProcess(); !status.ok()) return status;
  options.timeout = std::min(options.timeout, kLongestTimeout);
  auto impl = std::make_unique<Impl>();
  impl->rank = rank;
  impl->size = size;
  impl->name = name;
  impl->options = std::move(options);
  const std::stop_token cancel = impl->options.cancel;
  absl::Status status = impl->Form(c10::make_intrusive<InterruptibleStore>(name, std::move(store), cancel), name);
  if (!status.ok()) return status;
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(impl)));
}

absl::StatusOr<std::shared_ptr<ProcessGroup>> ProcessGroup::NewSubgroup(absl::Span<const int> ranks,
                                                                        const std::string& name,
                                                                        std::optional<ProcessGroupOptions> options) {
  if (absl::Status status = impl_->Usable("new subgroup"); !status.ok()) return status;
  int own = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size() || (i > 0 && ranks[i] <= ranks[i - 1])) {
      return absl::InvalidArgumentError(
          absl::StrCat("subgroup ", name, ": ranks must ascend from 0 to ", size() - 1, ", each at most once"));
    }
    if (ranks[i] == rank()) own = static_cast<int>(i);
  }
  // Counted on all ranks, so that a name may be used again.
  const std::string full_name = absl::StrCat("sub/", impl_->subgroups_made++, "/", name);
  if (own < 0) return nullptr;
  auto impl = std::make_unique<Impl>();
  impl->rank = own;
  impl->size = static_cast<int>(ranks.size());
  impl->local_rank = impl_->local_rank;
  impl->name = name;
  impl->error_prefix = absl::StrCat("subgroup ", name, ": ");
  impl->store_on_rank_0 = impl_->store_on_rank_0;
  impl->several_hosts = impl_->several_hosts;
  impl->options = options.value_or(impl_->options);
  if (!impl->options.cancel.stop_possible()) impl->options.cancel = impl_->options.cancel;
  impl->options.timeout = std::min(impl->options.timeout, kLongestTimeout);
  if (absl::Status status = CheckOptions(own, impl->size, impl->options); !status.ok()) return status;
  const std::stop_token cancel = impl->options.cancel;
  impl->failure_store = c10::make_intrusive<c10d::PrefixStore>(full_name, impl_->failure_store);
  absl::Status status = impl->Form(c10::make_intrusive<InterruptibleStore>(full_name, impl_->store, cancel), full_name);
  if (!status.ok()) return status;
  std::shared_ptr<ProcessGroup> group(new ProcessGroup(std::move(impl)));
  absl::Status usable = impl_->AddSubgroup(group);
  if (!usable.ok()) return usable;
  return group;
}

absl::Status ProcessGroup::Try(absl::string_view operation, absl::FunctionRef<absl::Status()> body) {
  return impl_->Try(operation, timeout(), body);
}

absl::Status ProcessGroup::Explain(absl::string_view operation, const absl::Status& thrown) {
  return impl_->Explain(operation, thrown, timeout());
}

absl::Status ProcessGroup::Health() {
  constexpr absl::string_view kOperation = "health check";
  if (absl::Status status = impl_->Usable(kOperation); !status.ok()) return status;
  return impl_->NcclHealth(kOperation, timeout());
}

void ProcessGroup::AwaitReaders() { impl_->AwaitReaders(); }

void ProcessGroup::Abort(absl::string_view reason) { impl_->Abort(reason); }

absl::Status ProcessGroup::Shutdown() {
  if (impl_->group == nullptr) return absl::OkStatus();
  absl::Status status = Barrier();
  if (!status.ok()) {
    impl_->Leave();
    return status;
  }
  for (const std::shared_ptr<ProcessGroup>& subgroup : impl_->Subgroups()) {
    status.Update(subgroup->impl_->Release(/*healthy=*/true));
  }
  status.Update(impl_->Release(/*healthy=*/true));
  return status;
}

absl::Status ProcessGroup::Impl::Form(c10::intrusive_ptr<c10d::Store> fresh_store, const std::string& unique_name) {
  absl::Status status = FormInside(std::move(fresh_store), unique_name);
  const bool cancelled = options.cancel.stop_requested();
  if (status.ok() && !cancelled) return status;
  Release(/*healthy=*/false).IgnoreError();
  if (cancelled) return CreationCancelled(rank);
  // Settings that are wrong, or differ between the ranks, are the same after a restart. They are checked before there
  // is a board; from then on, a rank that dies may cause any error.
  const bool recurs = IsNonRestartable(status) || (absl::IsInvalidArgument(status) && board == nullptr);
  status = absl::Status(status.code(),
                        absl::StrCat(error_prefix, "rank ", rank, ": process group ", name, ": ", status.message()));
  return recurs ? NonRestartable(status) : status;
}

absl::Status ProcessGroup::Impl::FormInside(c10::intrusive_ptr<c10d::Store> fresh_store,
                                            const std::string& unique_name) {
  absl::StatusOr<BackendChoice> choice = ParseBackendChoice(options.backend, options.device.is_cuda());
  if (!choice.ok()) return choice.status();
  backend_text = choice->ToString();
  store = std::move(fresh_store);
  if (absl::Status status = ResolveDevice(*choice); !status.ok()) return status;
  if (failure_store == nullptr) failure_store = SecondConnection(store);
  NcclPlugin* plugin = nullptr;
  if (choice->nccl()) {
    absl::StatusOr<NcclPlugin*> loaded = LoadNcclPlugin();
    if (!loaded.ok()) return loaded.status();
    plugin = *loaded;
    if (absl::Status status = CheckCudaWasLoadedInTime(); !status.ok()) return status;
  }
  const bool checked = c10d::debug_level() == c10d::DebugLevel::Detail;
  Peer self = ThisProcess();
  bound_to_gpu = plugin != nullptr && options.device.is_cuda();
  if (bound_to_gpu) {
    absl::Status status = TorchTry("", [&] {
      self.gpu = absl::BytesToHexString(plugin->DeviceUuid(cuda_device));
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
  }
  if (choice->gloo() || checked) {
    absl::StatusOr<std::unique_ptr<GlooBackend>> listening =
        GlooBackend::Listen(WhereToListen(options, store, several_hosts));
    if (!listening.ok()) return listening.status();
    gloo = *std::move(listening);
    self.address = gloo->address();
  }
  self.settings = absl::StrCat("backend ", backend_text, checked ? " with TORCH_DISTRIBUTED_DEBUG=DETAIL" : "");
  const char* const nccl_host = getenv("NCCL_HOSTID");
  self.nccl_host = nccl_host == nullptr ? self.host : nccl_host;
  absl::StatusOr<Peers> met = Meet(*store, rank, size, self, options.timeout, store_on_rank_0 && rank == 0);
  if (!met.ok()) return met.status();
  peers = *std::move(met);
  if (absl::Status status = peers.CheckCompatible(); !status.ok()) return status;
  board = std::make_shared<FailureBoard>(failure_store, rank, size);
  if (gloo != nullptr) {
    if (absl::Status status = ConnectGloo(); !status.ok()) return status;
  }
  return TorchTry("", [&] {
    if (plugin != nullptr) {
      nccl = plugin->Create(c10::make_intrusive<NcclStore>("cuda", store, aborted_.get_token(), size), rank, size,
                            cuda_device, absl::ToChronoMilliseconds(options.timeout));
    }
    MakeGroup(*choice, checked, unique_name);
    return absl::OkStatus();
  });
}

absl::Status ProcessGroup::Impl::ConnectNccl() {
  if (!bound_to_gpu) return absl::OkStatus();
  absl::Status status = RunCancellable(options.cancel, [backend = nccl, device = cuda_device] {
    const absl::Status connected = TorchTry("NCCL could not connect the ranks", [&] {
      std::vector<at::Tensor> tensors = {at::zeros({1}, at::TensorOptions().device(device))};
      backend->allreduce(tensors, {})->wait();
      return absl::OkStatus();
    });
    return absl::IsInvalidArgument(connected) ? NonRestartable(connected) : connected;
  });
  // The thread that is left behind then need not wait in the store for ranks that do not come.
  if (absl::IsCancelled(status)) aborted_.request_stop();
  return status;
}

absl::Status ProcessGroup::Impl::ResolveDevice(const BackendChoice& choice) {
  if (!options.device.is_cuda() && choice.gloo_for_cpu && !choice.nccl()) return absl::OkStatus();
  cuda_device = options.device;
  if (!cuda_device.is_cuda() || !cuda_device.has_index()) {
    if (!local_rank.has_value()) {
      return absl::InvalidArgumentError(
          "the device needs an index, as in cuda:1; without one all ranks of a host would take the same GPU");
    }
    cuda_device = c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(*local_rank));
  }
  if (options.device.is_cuda()) options.device = cuda_device;
  if (!choice.gloo_for_cpu) device = cuda_device;
  return absl::OkStatus();
}

absl::Status ProcessGroup::Impl::ConnectGloo() {
  absl::Status status = gloo->Connect(c10::make_intrusive<c10d::PrefixStore>("cpu", store), rank, peers,
                                      options.timeout, c10d::debug_level() == c10d::DebugLevel::Detail, options.cancel);
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("all ranks joined, but this one (listening on ", gloo->address(),
                                     ") could not connect to all others: ", status.message(),
                                     "; check that the hosts can reach each other on this network "
                                     "(GLOO_SOCKET_IFNAME selects the interface) and that no rank has died"));
  }
  // Ranks that are threads of one process can't tell their sockets apart.
  bool alone = true;
  for (int other = 0; other < size; ++other) {
    alone &= other == rank || peers[other].host != peers[rank].host || peers[other].pid != peers[rank].pid;
  }
  return AwaitConnections(*store, rank, peers, alone ? gloo->Ports() : std::vector<int>(),
                          std::min(options.timeout, GlooBackend::kConnectTimeout));
}

// Assembles `group` like torch.distributed's _new_process_group_helper.
void ProcessGroup::Impl::MakeGroup(const BackendChoice& choice, bool checked, const std::string& unique_name) {
  group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  // No device is bound: c10d would refuse the tensors of a model's other devices.
  const auto set = [&](c10::DeviceType device, Backends type, c10::intrusive_ptr<c10d::Backend> backend) {
    // TORCH_DISTRIBUTED_DEBUG=DETAIL: every collective first compares operation, shape and dtype among the ranks.
    if (checked) {
      backend = c10::make_intrusive<c10d::ProcessGroupWrapper>(backend, gloo->checker());
    }
    group->setBackend(device, type, backend);
  };
  if (choice.gloo_for_cpu) set(c10::DeviceType::CPU, Backends::GLOO, gloo->backend());
  if (choice.gloo_for_cuda) set(c10::DeviceType::CUDA, Backends::GLOO, gloo->backend());
  if (choice.nccl_for_cuda) set(c10::DeviceType::CUDA, Backends::NCCL, nccl);
  group->setDefaultBackend(choice.gloo() ? Backends::GLOO : Backends::NCCL);
  group->setGroupName(unique_name);
  group->setGroupDesc(name);
}

}  // namespace ddprun

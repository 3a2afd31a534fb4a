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
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/background_calls.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "worker_contract/answers.h"
#include "worker_contract/environment.h"
#include "worker_runtime/base/non_restartable.h"
#include "worker_runtime/base/torch_try.h"
#include "worker_runtime/process_group/backend_choice.h"
#include "worker_runtime/process_group/cancellable.h"
#include "worker_runtime/process_group/choose_device.h"
#include "worker_runtime/process_group/failure_board.h"
#include "worker_runtime/process_group/failure_report.h"
#include "worker_runtime/process_group/gloo_backend.h"
#include "worker_runtime/process_group/interruptible_store.h"
#include "worker_runtime/process_group/meeting.h"
#include "worker_runtime/process_group/peers.h"
#include "worker_runtime/process_group/tcp_sockets.h"

// Parts, in this order: what a process prepares once, the state of a group (Impl), ProcessGroup's functions, creation,
// failure and end. The collectives are in collectives.cc.
namespace ddprun {
namespace {

using Backends = c10d::ProcessGroup::BackendType;
using Kind = FailureReport::Kind;

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
    // several threads use groups (seen with 2.11). It is left on for a launcher that asks it (AnswerQuestions):
    // InterruptibleBackend begins Gloo's operations one at a time. Other users who want it set the variable.
    if (getenv(worker_contract::kWorkerLink) == nullptr) setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
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

// Prefix of the error of an aborted group; the reason follows.
constexpr absl::string_view kAborted = "aborted: ";

// How long a rank that gave up waits for the reports of ranks in the same operation, which are woken first. nccl2 looks
// for errors and time-outs once in a second only.
constexpr absl::Duration kReportWait = absl::Seconds(1);
constexpr absl::Duration kReportWaitOfNccl2 = absl::Seconds(3);

// How long an abort of NCCL is waited for. It takes milliseconds, unless the driver or the network hangs.
constexpr absl::Duration kAbortWait = absl::Seconds(5);

// Complete text of c10d's error when Work::wait times out. Other timeouts have longer texts, such as a data loader's
// "Operation timed out after 5 s".
constexpr absl::string_view kWorkTimedOut = "Operation timed out!";

FailureReport AbortReport(absl::string_view reason) {
  return {.kind = Kind::kAborted, .operation = "Abort", .detail = std::string(reason)};
}

// True if the exception came from a collective's connections, not from the trainer's code.
bool IsConnectionError(const absl::Status& thrown) {
  if (!absl::IsUnavailable(thrown) && !absl::IsDeadlineExceeded(thrown)) return false;
  return absl::StrContains(thrown.message(), "gloo/") || absl::StrContains(thrown.message(), "NCCL") ||
         absl::StrContains(thrown.message(), "nccl") || thrown.message() == kWorkTimedOut ||
         // TORCH_DISTRIBUTED_DEBUG=DETAIL: ends a collective before it begins.
         absl::StrContains(thrown.message(), "monitoredBarrier");
}

// "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Read error [10.0.0.7]:24501: Connection reset by peer"
// without the source file and the address, whose port is printed wrong.
std::string StripSourceAndAddress(absl::string_view text) {
  const size_t end = text.find("] ");
  if (absl::StartsWith(text, "[") && end != absl::string_view::npos) text.remove_prefix(end + 2);
  const size_t open = text.rfind(" ["), close = text.rfind("]:");
  if (open == absl::string_view::npos || close == absl::string_view::npos || open > close) return std::string(text);
  const size_t after = text.find_first_not_of("0123456789", close + 2);
  return absl::StrCat(text.substr(0, open), after == absl::string_view::npos ? "" : text.substr(after));
}

}  // namespace

// State of a process group. The members without a trailing underscore are set at creation and not changed before
// Release.
class ProcessGroup::Impl {
 public:
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  // unknown in CreateWithStore
  std::string name;
  std::string error_prefix;  // set in subgroups, whose ranks differ from the job's
  std::string backend_text;
  absl::Duration report_wait = kReportWait;
  bool store_on_rank_0 = false;  // the store ends with rank 0
  bool several_hosts = false;
  ProcessGroupOptions options;
  c10::Device device = c10::Device(c10::DeviceType::CPU);       // device of the group's own tensors
  c10::Device cuda_device = c10::Device(c10::DeviceType::CPU);  // a GPU if it has CUDA tensors
  bool bound_to_gpu = false;                                    // NCCL is used, and this rank's device is a GPU

  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Store> failure_store;  // the same keys through another connection
  Peers peers;
  std::shared_ptr<FailureBoard> board;
  std::unique_ptr<GlooBackend> gloo;
  c10::intrusive_ptr<c10d::Backend> nccl;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  int subgroups_made = 0;

  // Meets the other ranks in `fresh_store`, then creates `group`, which LibTorch's logs call `unique_name`.
  absl::Status Form(c10::intrusive_ptr<c10d::Store> fresh_store, const std::string& unique_name);

  // See ProcessGroup.
  absl::Status ConnectNccl();

  // Returns OK, or the reason why `operation` can no longer run.
  absl::Status Usable(absl::string_view operation);

  // See ProcessGroup. `timeout` is that of the operation.
  absl::Status Try(absl::string_view operation, absl::Duration timeout, absl::FunctionRef<absl::Status()> body);

  // Returns OK, or the error of a collective that was enqueued earlier. Always OK for Gloo, which waits for each.
  absl::Status NcclHealth(absl::string_view operation, absl::Duration timeout);

  // Returns the error for an exception that `operation` threw. If a connection failed, breaks all others, so that the
  // failure reaches all ranks at once, and the group stays failed.
  absl::Status Explain(absl::string_view operation, const absl::Status& thrown, absl::Duration timeout);

  void Abort(absl::string_view reason);

  // See ProcessGroup.
  void AwaitReaders();

  // Ends the group without Shutdown: informs the others, interrupts pending operations, and releases everything.
  void Leave();

  // Releases connections and threads. A healthy NCCL backend first completes the operations that are enqueued, and
  // returns their error.
  absl::Status Release(bool healthy);

  // Registers a subgroup. Error: this group has failed in the meantime; `subgroup` is then aborted.
  absl::Status AddSubgroup(const std::shared_ptr<ProcessGroup>& subgroup);
  std::vector<std::shared_ptr<ProcessGroup>> Subgroups();

 private:
  absl::Status FormInside(c10::intrusive_ptr<c10d::Store> fresh_store, const std::string& unique_name);
  absl::Status ConnectGloo();
  absl::Status ResolveDevice(const BackendChoice& choice);
  void MakeGroup(const BackendChoice& choice, bool checked, const std::string& unique_name);

  FailureReport Describe(absl::string_view operation, const absl::Status& thrown);
  uint64_t Sequence();

  // Breaks all connections. Gloo's break at once; NCCL's abort, which may take long, is one of the `aborting` calls, so
  // that neither other groups nor the report wait for it.
  void CutOff(BackgroundCalls& aborting);
  // Calls CutOff for this group and its subgroups, which then fail with Aborted and `reason`. Returns the groups'
  // boards, for their reports.
  std::vector<std::shared_ptr<FailureBoard>> AbortAll(absl::string_view reason, BackgroundCalls& aborting);

  std::stop_source aborted_;  // ends waits for the store inside NCCL
  Mutex mutex_;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);    // why the group is unusable
  std::set<int> gone_ ABSL_GUARDED_BY(mutex_);     // ranks without a failure report: do not wait for them
  bool released_ ABSL_GUARDED_BY(mutex_) = false;  // no connections are left
  std::vector<std::weak_ptr<ProcessGroup>> subgroups_ ABSL_GUARDED_BY(mutex_);
};

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
  DDPRUN_RETURN_IF_ERROR(CheckOptions(env.rank, env.world_size, options));
  DDPRUN_RETURN_IF_ERROR(PrepareProcess());
  worker_contract::AnswerQuestions();
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
  DDPRUN_RETURN_IF_ERROR(impl->Form(
      c10::make_intrusive<InterruptibleStore>(absl::StrCat(round, "/", number), *store, impl->options.cancel), number));
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(impl)));
}

absl::StatusOr<std::shared_ptr<ProcessGroup>> ProcessGroup::CreateWithStore(c10::intrusive_ptr<c10d::Store> store,
                                                                            const std::string& name, int rank, int size,
                                                                            ProcessGroupOptions options) {
  DDPRUN_RETURN_IF_ERROR(CheckOptions(rank, size, options));
  DDPRUN_RETURN_IF_ERROR(PrepareProcess());
  options.timeout = std::min(options.timeout, kLongestTimeout);
  auto impl = std::make_unique<Impl>();
  impl->rank = rank;
  impl->size = size;
  impl->name = name;
  impl->options = std::move(options);
  const std::stop_token cancel = impl->options.cancel;
  DDPRUN_RETURN_IF_ERROR(impl->Form(c10::make_intrusive<InterruptibleStore>(name, std::move(store), cancel), name));
  return std::shared_ptr<ProcessGroup>(new ProcessGroup(std::move(impl)));
}

absl::StatusOr<std::shared_ptr<ProcessGroup>> ProcessGroup::NewSubgroup(absl::Span<const int> ranks,
                                                                        const std::string& name,
                                                                        std::optional<ProcessGroupOptions> options) {
  DDPRUN_RETURN_IF_ERROR(impl_->Usable("new subgroup"));
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
  DDPRUN_RETURN_IF_ERROR(CheckOptions(own, impl->size, impl->options));
  const std::stop_token cancel = impl->options.cancel;
  impl->failure_store = c10::make_intrusive<c10d::PrefixStore>(full_name, impl_->failure_store);
  DDPRUN_RETURN_IF_ERROR(
      impl->Form(c10::make_intrusive<InterruptibleStore>(full_name, impl_->store, cancel), full_name));
  std::shared_ptr<ProcessGroup> group(new ProcessGroup(std::move(impl)));
  DDPRUN_RETURN_IF_ERROR(impl_->AddSubgroup(group));
  return group;
}

absl::Status ProcessGroup::Barrier(std::optional<absl::Duration> timeout) {
  const absl::Duration limit = timeout.value_or(this->timeout());
  return impl_->Try("barrier", limit, [&]() -> absl::Status {
    c10d::BarrierOptions options;
    options.timeout = absl::ToChronoMilliseconds(limit);
    if (impl_->cuda_device.is_cuda()) options.device = impl_->cuda_device;
    c10d()->getDefaultBackend()->barrier(options)->wait();
    return absl::OkStatus();
  });
}

absl::Status ProcessGroup::Try(absl::string_view operation, absl::FunctionRef<absl::Status()> body) {
  return impl_->Try(operation, timeout(), body);
}

absl::Status ProcessGroup::Explain(absl::string_view operation, const absl::Status& thrown) {
  return impl_->Explain(operation, thrown, timeout());
}

absl::Status ProcessGroup::Health() {
  constexpr absl::string_view kOperation = "health check";
  DDPRUN_RETURN_IF_ERROR(impl_->Usable(kOperation));
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

// ---- creation ----

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
  DDPRUN_ASSIGN_OR_RETURN(BackendChoice choice, ParseBackendChoice(options.backend, options.device.is_cuda()));
  backend_text = choice.ToString();
  if (choice.nccl() && choice.engine == NcclEngine::kNccl2) report_wait = kReportWaitOfNccl2;
  store = std::move(fresh_store);
  DDPRUN_RETURN_IF_ERROR(ResolveDevice(choice));
  if (failure_store == nullptr) failure_store = SecondConnection(store);
  NcclPlugin* plugin = nullptr;
  if (choice.nccl()) {
    DDPRUN_ASSIGN_OR_RETURN(plugin, LoadNcclPlugin());
    DDPRUN_RETURN_IF_ERROR(CheckCudaWasLoadedInTime());
  }
  const bool checked = c10d::debug_level() == c10d::DebugLevel::Detail;
  Peer self = ThisProcess();
  bound_to_gpu = plugin != nullptr && options.device.is_cuda();
  if (bound_to_gpu) {
    DDPRUN_RETURN_IF_ERROR(TorchTry("", [&] {
      self.gpu = absl::BytesToHexString(plugin->DeviceUuid(cuda_device));
      return absl::OkStatus();
    }));
  }
  if (choice.gloo() || checked) {
    DDPRUN_ASSIGN_OR_RETURN(gloo, GlooBackend::Listen(WhereToListen(options, store, several_hosts)));
    self.address = gloo->address();
  }
  self.settings = absl::StrCat("backend ", backend_text, checked ? " with TORCH_DISTRIBUTED_DEBUG=DETAIL" : "");
  const char* const nccl_host = getenv("NCCL_HOSTID");
  self.nccl_host = nccl_host == nullptr ? self.host : nccl_host;
  DDPRUN_ASSIGN_OR_RETURN(peers, Meet(*store, rank, size, self, options.timeout, store_on_rank_0 && rank == 0));
  DDPRUN_RETURN_IF_ERROR(peers.CheckCompatible());
  board = std::make_shared<FailureBoard>(failure_store, rank, size);
  if (gloo != nullptr) DDPRUN_RETURN_IF_ERROR(ConnectGloo());
  return TorchTry("", [&] {
    if (plugin != nullptr) {
      nccl = plugin->Create(choice.engine, c10::make_intrusive<NcclStore>("cuda", store, aborted_.get_token(), size),
                            rank, size, cuda_device, absl::ToChronoMilliseconds(options.timeout));
    }
    MakeGroup(choice, checked, unique_name);
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
  group->setGroupDesc(name);
  group->setGroupName(unique_name);
}

// ---- failure and end ----

absl::Status ProcessGroup::Impl::Usable(absl::string_view operation) {
  MutexLock lock(&mutex_);
  if (!failed_.ok()) {
    if (absl::IsAborted(failed_)) {
      return absl::AbortedError(absl::StrCat(error_prefix, "rank ", rank, ": ", operation, ": ", failed_.message()));
    }
    return absl::Status(failed_.code(), absl::StrCat(error_prefix, "rank ", rank, ": ", operation,
                                                     ": the group failed earlier: ", failed_.message()));
  }
  if (!released_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(error_prefix, "rank ", rank, ": ", operation, ": the group was shut down"));
}

uint64_t ProcessGroup::Impl::Sequence() {
  uint64_t sequence = 0;
  TorchTry("", [&] {
    sequence = group->getDefaultBackend()->getSequenceNumberForGroup();
    return absl::OkStatus();
  }).IgnoreError();
  return sequence;
}

FailureReport ProcessGroup::Impl::Describe(absl::string_view operation, const absl::Status& thrown) {
  const std::string text(thrown.message());
  FailureReport report{.kind = absl::IsDeadlineExceeded(thrown) ? Kind::kTimeout : Kind::kLost,
                       .operation = std::string(operation),
                       .sequence = Sequence(),
                       .detail = StripSourceAndAddress(text)};
  if (report.kind == Kind::kTimeout) return report;
  const std::vector<std::string> addresses = AddressesInText(text);
  for (const std::string& address : addresses) {
    if (!report.lost.has_value()) report.lost = peers.RankListeningAt(address);
  }
  if (!report.lost.has_value() && !addresses.empty()) {
    board->Ask([&](c10d::Store& store) { report.lost = RankOfPort(store, peers, addresses); });
  }
  return report;
}

absl::Status ProcessGroup::Impl::Try(absl::string_view operation, absl::Duration timeout,
                                     absl::FunctionRef<absl::Status()> body) {
  DDPRUN_RETURN_IF_ERROR(Usable(operation));
  absl::Status returned;
  const absl::Status thrown = TorchTry("", [&] {
    returned = body();
    return absl::OkStatus();
  });
  if (!thrown.ok()) return Explain(operation, thrown, timeout);
  if (!returned.ok()) return returned;
  // An operation on a GPU that was interrupted by an abort returns without an error. FailedPrecondition is no error:
  // `body` may have shut the group down.
  const absl::Status usable = Usable(operation);
  if (!usable.ok() && !absl::IsFailedPrecondition(usable)) return usable;
  return NcclHealth(operation, timeout);
}

absl::Status ProcessGroup::Impl::NcclHealth(absl::string_view operation, absl::Duration timeout) {
  c10::intrusive_ptr<c10d::Backend> running;
  {
    MutexLock lock(&mutex_);
    running = nccl;
  }
  if (running == nullptr) return absl::OkStatus();
  c10d::ErrorType error = c10d::ErrorType::SUCCESS;
  const absl::Status thrown = TorchTry("", [&] {
    error = running->getError();
    return absl::OkStatus();
  });
  if (!thrown.ok()) return Explain(operation, thrown, timeout);
  switch (error) {
    case c10d::ErrorType::SUCCESS: return absl::OkStatus();
    case c10d::ErrorType::TIMEOUT:
      return Explain(operation, absl::DeadlineExceededError("NCCL timed out in an earlier collective"), timeout);
    case c10d::ErrorType::REMOTE_ERROR:
      return Explain(operation, absl::UnavailableError("NCCL failed on another rank"), timeout);
    case c10d::ErrorType::COMM_ERROR: break;
  }
  return Explain(operation, absl::UnavailableError("NCCL failed in an earlier collective"), timeout);
}

absl::Status ProcessGroup::Impl::Explain(absl::string_view operation, const absl::Status& thrown,
                                         absl::Duration timeout) {
  DDPRUN_RETURN_IF_ERROR(Usable(operation));
  if (!IsConnectionError(thrown)) {
    return absl::Status(thrown.code(),
                        absl::StrCat(error_prefix, "rank ", rank, ": ", operation, ": ", thrown.message()));
  }
  FailureReport own = Describe(operation, thrown);
  board->Post(own);
  BackgroundCalls aborting;
  CutOff(aborting);
  const auto wait = absl::MakeCleanup([&aborting] { aborting.Wait(kAbortWait); });
  FailureReports reports = board->Read();
  // Gloo closes its connections before the rank that gave up can post its report. A rank that posts none is gone.
  const FailureCause first = FindCause(rank, own, reports);
  if (options.await_failure_reports && first.rank.has_value() && !first.reported.has_value()) {
    board->Await(*first.rank, report_wait);
    reports = board->Read();
  }
  // Ranks give up at different times: without a wait, healthy ranks would be reported as missing from the collective.
  // NCCL does not tell which connection broke: ranks without a report are suspected.
  const FailureCause so_far = FindCause(rank, own, reports);
  if (IsTimeout(so_far) || (options.await_failure_reports && !so_far.rank.has_value())) {
    board->AwaitAll(report_wait);
    reports = board->Read();
  }
  if (board->store_is_lost()) {
    absl::StrAppend(&own.detail, "; the store is not reachable either");
    if (store_on_rank_0 && rank != 0) own.lost = 0;
  }
  absl::Status status = ExplainFailure(peers, rank, timeout, own, reports);
  status = absl::Status(status.code(), absl::StrCat(error_prefix, status.message()));
  board->AnnounceRead();
  MutexLock lock(&mutex_);
  const FailureCause cause = FindCause(rank, own, reports);
  for (int other = 0; other < size; ++other) {
    const bool silent = !reports.contains(other) && other != rank;
    if (silent && (IsTimeout(cause) || !cause.rank.has_value() || cause.rank == other)) gone_.insert(other);
  }
  if (!failed_.ok())
    return absl::Status(failed_.code(),
                        absl::StrCat(error_prefix, "rank ", rank, ": ", operation, ": ", failed_.message()));
  failed_ = status;
  return status;
}

void ProcessGroup::Impl::CutOff(BackgroundCalls& aborting) {
  aborted_.request_stop();
  c10::intrusive_ptr<c10d::Backend> running;
  {
    MutexLock lock(&mutex_);
    if (released_) return;
    if (gloo != nullptr) gloo->CutOff();
    running = nccl;
  }
  if (running == nullptr) return;
  aborting.Start([running] {
    TorchTry("", [&] {
      running->abort();
      return absl::OkStatus();
    }).IgnoreError();
  });
}

std::vector<std::shared_ptr<FailureBoard>> ProcessGroup::Impl::AbortAll(absl::string_view reason,
                                                                        BackgroundCalls& aborting) {
  std::vector<std::shared_ptr<FailureBoard>> boards;
  {
    MutexLock lock(&mutex_);
    if (released_) return boards;
    if (!absl::IsAborted(failed_)) failed_ = absl::AbortedError(absl::StrCat(kAborted, reason));
    if (board != nullptr) boards.push_back(board);
  }
  CutOff(aborting);
  for (const std::shared_ptr<ProcessGroup>& subgroup : Subgroups()) {
    for (std::shared_ptr<FailureBoard>& other : subgroup->impl_->AbortAll(reason, aborting)) boards.push_back(other);
  }
  return boards;
}

void ProcessGroup::Impl::Abort(absl::string_view reason) {
  // The report is posted last, as the store may be unreachable. Ranks that see the connections close wait briefly for
  // it.
  BackgroundCalls aborting;
  for (const std::shared_ptr<FailureBoard>& each : AbortAll(reason, aborting)) each->Post(AbortReport(reason));
  aborting.Wait(kAbortWait);
}

void ProcessGroup::Impl::AwaitReaders() {
  if (!store_on_rank_0 || board == nullptr) return;
  board->AnnounceRead();
  if (rank != 0) return;
  std::set<int> gone;
  {
    MutexLock lock(&mutex_);
    gone = gone_;
  }
  board->AwaitReaders(gone, report_wait);
}

void ProcessGroup::Impl::Leave() {
  FailureReport report{.kind = Kind::kLeft, .operation = "no operation"};
  {
    MutexLock lock(&mutex_);
    if (released_) return;
    // The aborting thread may not have posted its report yet; if it has, this one is ignored.
    if (absl::IsAborted(failed_)) report = AbortReport(absl::StripPrefix(failed_.message(), kAborted));
  }
  BackgroundCalls aborting;
  CutOff(aborting);
  std::vector<std::shared_ptr<FailureBoard>> boards;
  for (const std::shared_ptr<ProcessGroup>& subgroup : Subgroups()) {
    for (auto& each : subgroup->impl_->AbortAll("its parent group was destroyed", aborting)) boards.push_back(each);
  }
  if (size > 1 && board != nullptr) board->Post(report);
  for (const std::shared_ptr<FailureBoard>& each : boards) each->Post(AbortReport("its parent group was destroyed"));
  aborting.Wait(kAbortWait);
  Release(/*healthy=*/false).IgnoreError();
}

absl::Status ProcessGroup::Impl::Release(bool healthy) {
  std::unique_ptr<GlooBackend> old_gloo;
  c10::intrusive_ptr<c10d::Backend> old_nccl;
  c10::intrusive_ptr<c10d::ProcessGroup> old_group;
  {
    MutexLock lock(&mutex_);
    released_ = true;
    old_gloo = std::move(gloo);
    old_nccl = std::move(nccl);
    old_group = std::move(group);
  }
  if (old_nccl == nullptr || !healthy) return absl::OkStatus();
  return TorchTry(absl::StrCat(error_prefix, "rank ", rank, ": shutdown of NCCL"), [&] {
    old_nccl->shutdown();
    return absl::OkStatus();
  });
}

absl::Status ProcessGroup::Impl::AddSubgroup(const std::shared_ptr<ProcessGroup>& subgroup) {
  absl::Status failed;
  {
    MutexLock lock(&mutex_);
    std::erase_if(subgroups_, [](const std::weak_ptr<ProcessGroup>& old) { return old.expired(); });
    subgroups_.push_back(subgroup);
    failed = failed_;
  }
  if (!failed.ok()) subgroup->Abort(failed.message());
  return failed;
}

std::vector<std::shared_ptr<ProcessGroup>> ProcessGroup::Impl::Subgroups() {
  std::vector<std::shared_ptr<ProcessGroup>> alive;
  MutexLock lock(&mutex_);
  for (const std::weak_ptr<ProcessGroup>& subgroup : subgroups_) {
    if (std::shared_ptr<ProcessGroup> group = subgroup.lock()) alive.push_back(std::move(group));
  }
  return alive;
}

}  // namespace ddprun

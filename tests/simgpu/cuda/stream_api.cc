// CUDA Runtime API, "Stream Management" and "Event Management".
#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "tests/simgpu/cuda/machine.h"
#include "tests/simgpu/cuda/stream.h"

namespace simgpu {
namespace {

using Clock = std::chrono::steady_clock;

// One call of cudaEventRecord. "Event Management": an event captures the work of a stream at the time of the call, so a
// later record does not move those who already wait.
class Record {
 public:
  void Complete() {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    time_ = Clock::now();
    changed_.notify_all();
  }

  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

  bool IsDone(Clock::time_point* time = nullptr) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (time != nullptr) *time = time_;
    return done_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  Clock::time_point time_;
};

struct Event {
  std::mutex mutex;
  std::shared_ptr<Record> last;  // nullptr: never recorded
};

Event* EventOf(cudaEvent_t handle) { return reinterpret_cast<Event*>(handle); }

std::shared_ptr<Record> LastRecord(cudaEvent_t handle) {
  std::lock_guard<std::mutex> lock(EventOf(handle)->mutex);
  return EventOf(handle)->last;
}

}  // namespace
}  // namespace simgpu

using simgpu::Enter;
using simgpu::Record;
using simgpu::Remember;
using simgpu::Stream;
using simgpu::StreamOf;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  simgpu::Device& device = simgpu::DeviceAt(simgpu::CurrentDevice());
  auto* const created = new Stream(simgpu::CurrentDevice(), priority);
  std::lock_guard<std::mutex> lock(device.mutex);
  device.streams.insert(created);
  *stream = reinterpret_cast<cudaStream_t>(created);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  Stream* const stream = reinterpret_cast<Stream*>(handle);
  simgpu::Device& device = simgpu::DeviceAt(stream->device());
  {
    std::lock_guard<std::mutex> lock(device.mutex);
    device.streams.erase(stream);
  }
  stream->Close();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  return StreamOf(stream)->IsIdle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  StreamOf(stream)->Wait();
  return Enter();  // the work may have broken the device
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = StreamOf(stream)->priority();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  if (auto record = simgpu::LastRecord(event)) StreamOf(stream)->Enqueue([record] { record->Wait(); });
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  StreamOf(stream)->Enqueue([=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  StreamOf(stream)->Enqueue([=] { function(stream, cudaSuccess, data); });
  return cudaSuccess;
}

// No stream captures a graph.
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  *status = cudaStreamCaptureStatusNone;
  if (id != nullptr) *id = 0;
  if (graph != nullptr) *graph = nullptr;
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  *event = reinterpret_cast<cudaEvent_t>(new simgpu::Event);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete simgpu::EventOf(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  auto record = std::make_shared<Record>();
  {
    std::lock_guard<std::mutex> lock(simgpu::EventOf(event)->mutex);
    simgpu::EventOf(event)->last = record;
  }
  StreamOf(stream)->Enqueue([record] { record->Complete(); });
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

// An event that was never recorded counts as complete.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  const auto record = simgpu::LastRecord(event);
  return record == nullptr || record->IsDone() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  if (const auto record = simgpu::LastRecord(event)) record->Wait();
  return Enter();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  SIMCUDA_RETURN_IF_ERROR(Enter());
  const auto first = simgpu::LastRecord(start), second = simgpu::LastRecord(end);
  if (first == nullptr || second == nullptr) return Remember(cudaErrorInvalidValue);
  simgpu::Clock::time_point began, ended;
  if (!first->IsDone(&began) || !second->IsDone(&ended)) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(ended - began).count();
  return cudaSuccess;
}
}

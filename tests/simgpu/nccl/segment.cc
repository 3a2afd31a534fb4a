#include "tests/simgpu/nccl/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace simgpu {

Segment* MapSegment(const std::string& name) {
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0) return nullptr;
  void* at = MAP_FAILED;
  if (ftruncate(file, sizeof(Segment)) == 0) {
    at = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  }
  close(file);
  return at == MAP_FAILED ? nullptr : static_cast<Segment*>(at);
}

}  // namespace simgpu

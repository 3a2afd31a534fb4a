#include "tests/simgpu/nccl/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/simgpu/settings.h"

namespace simgpu {

namespace {

std::string PathOf(const std::string& name) {
  const char* const folder = TextSetting("TEST_TMPDIR");
  return (folder != nullptr ? folder : "/dev/shm") + name;
}

}  // namespace

void RemoveSegment(const std::string& name) { unlink(PathOf(name).c_str()); }

Segment* MapSegment(const std::string& name) {
  const int file = open(PathOf(name).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  void* at = MAP_FAILED;
  if (ftruncate(file, sizeof(Segment)) == 0) {
    at = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  }
  close(file);
  return at == MAP_FAILED ? nullptr : static_cast<Segment*>(at);
}

}  // namespace simgpu

#include "launcher/fork_server/links_worker_runtime.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "launcher/io/file_descriptor.h"
#include "worker_contract/fork_protocol.h"

namespace ddprun::launcher {

bool IsLinkedWithWorkerRuntime(const std::string& file) {
  constexpr absl::string_view kElf = "\177ELF";
  const UniqueFd opened(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!opened.valid() || fstat(opened.get(), &status) != 0 || status.st_size < static_cast<off_t>(kElf.size())) {
    return false;
  }
  const size_t size = status.st_size;
  void* const begin = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.get(), 0);
  if (begin == MAP_FAILED) return false;
  madvise(begin, size, MADV_SEQUENTIAL);
  // Assembled here, so that the launcher's own binary does not contain it.
  const std::string mark = absl::StrCat(DDPRUN_FORK_SERVER_MARK_BEGIN, DDPRUN_FORK_SERVER_MARK_END);
  const bool found =
      memcmp(begin, kElf.data(), kElf.size()) == 0 && memmem(begin, size, mark.data(), mark.size()) != nullptr;
  munmap(begin, size);
  return found;
}

}  // namespace ddprun::launcher

#include "launcher/io/output_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "launcher/io/file_descriptor.h"

namespace ddprun::launcher {
namespace {

struct OpenedFile {
  UniqueFd fd;
  uint64_t size = 0;  // bytes of the stream
  absl::Time written;
  bool truncated = false;  // cut by a program, so that positions begin at the start of the file
};

OpenedFile Open(const OutputSource& source) {
  OpenedFile file{UniqueFd(open(source.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0, {}};
  struct stat status = {};
  if (!file.fd.valid() || fstat(file.fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const auto size = static_cast<uint64_t>(status.st_size);
  file.truncated = size < source.from;
  file.size = file.truncated ? size : size - source.from;
  file.written = absl::TimeFromTimespec(status.st_mtim);
  return file;
}

OutputPart Read(const OpenedFile& file, const OutputSource& source, uint64_t from, size_t max) {
  OutputPart part{"", from};
  part.text.resize(std::min<uint64_t>(max, file.size - from));
  const ssize_t got = pread(file.fd.get(), part.text.data(), part.text.size(),
                            static_cast<off_t>(from + (file.truncated ? 0 : source.from)));
  part.text.resize(std::max<ssize_t>(got, 0));
  return part;
}

}  // namespace

OutputPart ReadOutput(const OutputSource& source, uint64_t from, size_t max) {
  if (!source.path.empty()) {
    const OpenedFile file = Open(source);
    if (file.fd.valid()) return Read(file, source, from > file.size ? 0 : from, max);
  }
  OutputPart part;
  part.found = source.tail != nullptr;
  if (part.found) part.text = source.tail->From(from, max, &part.begin);
  return part;
}

OutputPart ReadOutputEnd(const OutputSource& source, size_t max, std::optional<absl::Duration> since) {
  const auto last = [max](uint64_t end, uint64_t from) { return std::max(from, end - std::min<uint64_t>(max, end)); };
  const uint64_t recent = since && source.tail != nullptr ? source.tail->Since(SteadyNow() - *since) : 0;
  if (!source.path.empty()) {
    const OpenedFile file = Open(source);
    const bool old = since && source.tail == nullptr && file.written < absl::Now() - *since;
    if (file.fd.valid()) return Read(file, source, last(file.size, old ? file.size : std::min(recent, file.size)), max);
  }
  OutputPart part;
  part.found = source.tail != nullptr;
  if (part.found) part.text = source.tail->From(last(source.tail->end(), recent), max, &part.begin);
  return part;
}

}  // namespace ddprun::launcher

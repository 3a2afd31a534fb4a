// `flood LINES LENGTH [END]` writes LINES lines of LENGTH bytes (including the line end) to both standard output and
// standard error, as fast as it can. END is written at the end of both, without a line end.
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

bool WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written <= 0) return false;
    done += written;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 99;
  const int lines = atoi(argv[1]);
  const int length = atoi(argv[2]);
  std::string line(length - 1, 'x');
  line += '\n';
  std::string block;
  for (int i = 0; i < lines; ++i) {
    block += line;
    if (block.size() < 8192 && i + 1 < lines) continue;
    if (!WriteAll(STDOUT_FILENO, block) || !WriteAll(STDERR_FILENO, block)) return 1;
    block.clear();
  }
  if (argc > 3 && (!WriteAll(STDOUT_FILENO, argv[3]) || !WriteAll(STDERR_FILENO, argv[3]))) return 1;
  return 0;
}

#include "launcher/io/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

namespace ddprun::launcher {

void OpenMissingStandardStreams() {
  // open returns the lowest free number, so gaps are filled in order; the first descriptor above 2 is closed again.
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd < 3);
  if (fd >= 0) close(fd);
}

}  // namespace ddprun::launcher

// A worker's error file.
#include "launcher/report/error_file_format.h"
#include "rendezvous/core/messages.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;  // NOLINT
  const launcher::WorkerError error = launcher::ParseErrorFile(fuzz::Bytes(data, size));
  FUZZ_CHECK(error.message.size() <= launcher::kMaxErrorMessageBytes);
  FUZZ_CHECK(fuzz::IsOneLine(error.message));
  FUZZ_CHECK(error.traceback.size() <= rendezvous::kMaxTracebackBytes);
  return 0;
}

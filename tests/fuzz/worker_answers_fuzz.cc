// Answers of a worker about its collectives and threads.
#include <limits>

#include "launcher/hang/worker_probe.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace ddprun;            // NOLINT
using namespace ddprun::launcher;  // NOLINT
using ddprun::hang::v1::Group;
using ddprun::hang::v1::Process;

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view answer = fuzz::Bytes(data, size);
  ParseCounters(answer);
  for (const Group& group : ParseCollectives(answer, absl::UnixEpoch())) {
    FUZZ_CHECK(!group.name().empty());
    FUZZ_CHECK(group.collectives_size() <= kMostCollectives && group.point_to_point_size() <= kMostCollectives);
    int64_t last = std::numeric_limits<int64_t>::min();
    for (const auto& collective : group.collectives()) {
      FUZZ_CHECK(collective.number() > last && collective.age_ms() >= 0 && collective.timeout_ms() >= 0);
      last = collective.number();
    }
    FUZZ_CHECK(group.collectives().empty() || group.entered() == last);
    Group copy;  // a reader accepts it: all texts are UTF-8
    FUZZ_CHECK(copy.ParseFromString(group.SerializeAsString()));
  }
  Process process;
  ParsePythonStacks(answer, &process);
  ParseMainStack(answer, &process);
  FUZZ_CHECK(Process().ParseFromString(process.SerializeAsString()));
  return 0;
}

#include "base/utc_text.h"

namespace ddprun {

std::string UtcText(absl::Time time) { return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", time, absl::UTCTimeZone()); }

}  // namespace ddprun

#ifndef DDPRUN_RENDEZVOUS_CORE_INSPECTION_H_
#define DDPRUN_RENDEZVOUS_CORE_INSPECTION_H_

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/core/messages.h"

// Answers about the output and the usage of ranks (protocol 6.3): their bounds, their messages, and output as text.
// PURE.
namespace ddprun::rendezvous {

using v1::RankOutput;
using v1::RankUsage;

inline constexpr size_t kMaxOutputBytes = 64 * 1024;  // text of one RankOutput
inline constexpr int kMaxOutputsInInspection = 512;
inline constexpr int kMaxUsagesInInspection = 256;

// Sends the parts of an answer in as many messages as they need: each has at most `most`, and no further one that would
// make it longer than a rank's longest stacks. `add` is the function of Inspection that adds one.
template <typename Part>
void SendInParts(const v1::Inspect& asked, std::vector<Part> parts, int most, Part* (Inspection::*add)(),
                 const std::function<void(const Inspection&)>& send) {
  constexpr size_t kMostBytes = kMaxStackBytes + kMaxNativeStackBytes;
  Inspection message = NewInspection(asked.id(), asked.round(), /*last=*/false);
  size_t bytes = 0;
  int count = 0;
  for (Part& part : parts) {
    const size_t more = part.ByteSizeLong();
    if (count > 0 && (bytes + more > kMostBytes || count >= most)) {
      send(std::exchange(message, NewInspection(asked.id(), asked.round(), /*last=*/false)));
      bytes = 0;
      count = 0;
    }
    bytes += more;
    ++count;
    *(message.*add)() = std::move(part);
  }
  message.set_last(true);
  send(message);
}

// Returns a line of a worker's output, without its line end, as clean text (base/text.h): without the colors and cursor
// movements of a terminal, and of a progress bar, which overwrites itself, what remains.
std::string PlainLine(absl::string_view line);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_INSPECTION_H_

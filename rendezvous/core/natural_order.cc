#include "rendezvous/core/natural_order.h"

#include "absl/strings/ascii.h"

namespace ddprun::rendezvous {
namespace {

// Removes the digits at the front of `text` and returns them without leading zeros.
absl::string_view TakeNumber(absl::string_view* text) {
  size_t end = 0;
  while (end < text->size() && absl::ascii_isdigit((*text)[end])) ++end;
  absl::string_view number = text->substr(0, end);
  text->remove_prefix(end);
  while (number.size() > 1 && number[0] == '0') number.remove_prefix(1);
  return number;
}

}  // namespace

int NaturalCompare(absl::string_view a, absl::string_view b) {
  absl::string_view x = a, y = b;
  while (!x.empty() && !y.empty()) {
    if (absl::ascii_isdigit(x[0]) && absl::ascii_isdigit(y[0])) {
      const absl::string_view m = TakeNumber(&x), n = TakeNumber(&y);
      if (m.size() != n.size()) return m.size() < n.size() ? -1 : 1;
      if (const int c = m.compare(n); c != 0) return c;
      continue;
    }
    if (x[0] != y[0]) return static_cast<unsigned char>(x[0]) < static_cast<unsigned char>(y[0]) ? -1 : 1;
    x.remove_prefix(1);
    y.remove_prefix(1);
  }
  if (x.empty() != y.empty()) return x.empty() ? -1 : 1;
  return a.compare(b);
}

}  // namespace ddprun::rendezvous

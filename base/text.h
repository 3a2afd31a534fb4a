#ifndef DDPRUN_BASE_TEXT_H_
#define DDPRUN_BASE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

// Making foreign bytes (a worker's error file, a flag's value) fit to be shown on a terminal and put into a message.
namespace ddprun {

// Length in bytes of the valid UTF-8 character at the start of `bytes`, 0 if there is none (RFC 3629: no overlong
// forms, no surrogates, nothing above U+10FFFF).
size_t Utf8CharacterLength(absl::string_view bytes);

// Valid UTF-8 without control characters but tab and newline: other bytes become '?', "\r\n" becomes "\n".
std::string CleanText(absl::string_view bytes);

// All of `bytes` on one line, and harmless on a terminal: control characters and what is not valid UTF-8 are shown
// escaped ("\n", "\t", "\x1b").
std::string EscapeControls(absl::string_view bytes);

// CleanText on a single line: line ends and tabs become single spaces, blanks at both ends are dropped; what goes
// beyond `max_bytes` is cut at a character's border and replaced by "...". REQUIRES: max_bytes >= 3.
std::string OneLine(absl::string_view bytes, size_t max_bytes);

// At most `max_bytes` of clean `text`, keeping the beginning and, with the larger share, the end, where Python's
// tracebacks have their point. A line in the middle says how much was left out. REQUIRES: max_bytes >= 256.
std::string CutMiddle(absl::string_view text, size_t max_bytes);

}  // namespace ddprun

#endif  // DDPRUN_BASE_TEXT_H_

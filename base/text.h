#ifndef DDPRUN_BASE_TEXT_H_
#define DDPRUN_BASE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

// Makes foreign bytes (a worker's error file, a flag's value) safe to display on a terminal and to put into a message.
namespace ddprun {

// Returns the length in bytes of the valid UTF-8 character at the start of `bytes`, 0 if there is none (RFC 3629: no
// overlong forms, no surrogates, nothing above U+10FFFF).
size_t Utf8CharacterLength(absl::string_view bytes);

// Returns the longest start of valid UTF-8 `text` that has at most `max_bytes` and ends between two characters.
absl::string_view Utf8Prefix(absl::string_view text, size_t max_bytes);

// Returns the longest such end of `text`.
absl::string_view Utf8Suffix(absl::string_view text, size_t max_bytes);

// Returns valid UTF-8 without control characters other than tab and newline: other bytes become '?', "\r\n" becomes
// "\n".
std::string CleanText(absl::string_view bytes);

// Returns all of `bytes` on one line that is safe for a terminal: control characters and invalid UTF-8 are escaped
// ("\n", "\t", "\x1b").
std::string EscapeControls(absl::string_view bytes);

// Returns CleanText on a single line: line ends and tabs become single spaces, surrounding blanks are removed, and text
// beyond `max_bytes` is cut at a character boundary and replaced by "...". REQUIRES: max_bytes >= 3.
std::string OneLine(absl::string_view bytes, size_t max_bytes);

// Returns at most `max_bytes` of EscapeControls of `bytes`, in which invisible characters are escaped, too ("\u00a0");
// the rest is replaced by "...". REQUIRES: max_bytes >= 3.
std::string Visible(absl::string_view bytes, size_t max_bytes);

// Returns Visible of `text` in single quotes, for a message about a value that a user gave. Names the first character
// that web pages and editors put in the place of an ASCII one: "'2\u00a0' (with a no-break space)".
std::string Quoted(absl::string_view text);

// Shortens clean `text` to at most `max_bytes`, keeping the beginning and a larger part of the end, where Python
// tracebacks have their error. A line in between says how many bytes were left out. REQUIRES: max_bytes >= 256.
std::string CutMiddle(absl::string_view text, size_t max_bytes);

}  // namespace ddprun

#endif  // DDPRUN_BASE_TEXT_H_

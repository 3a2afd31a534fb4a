#ifndef DDPRUN_BASE_TEXT_H_
#define DDPRUN_BASE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

// Texts: foreign bytes (a worker's error file, a flag's value) made safe to display on a terminal and to put into a
// message, numbers of things in words, values as users write them. Pure, except RandomId.
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

// True if all of `bytes` is valid UTF-8. With HasControl: tells whether foreign bytes are acceptable as a name that is
// compared and displayed.
bool IsUtf8(absl::string_view bytes);

// True if it contains a control character (C0 with line ends and tabs, DEL, C1) or invalid UTF-8.
bool HasControl(absl::string_view bytes);

// Returns "1 node", "3 nodes". For nouns whose plural ends in "s".
inline std::string Counted(int64_t n, absl::string_view noun) { return absl::StrCat(n, " ", noun, n == 1 ? "" : "s"); }

// Returns a number of nodes as --nnodes has it: "4", or "2:4" if it is a range.
inline std::string MinMaxText(int64_t min, int64_t max) {
  return min == max ? absl::StrCat(max) : absl::StrCat(min, ":", max);
}

// Formats numbers as "0-2, 5, 7-9": sorted, without duplicates. If there are more than 8 ranges, the list is cut: "0,
// 2, 4, ... (500 in all)".
std::string RangesText(std::vector<int32_t> numbers);

// Formats the ranks `base_rank` + each of `ranks` as "rank 3", "ranks 0-2, 5" or "no rank".
std::string RanksText(std::vector<int32_t> ranks, int32_t base_rank = 0);

// Returns `text`, a value from a flag, an environment variable or a file, without what can't be meant: surrounding
// blanks and line ends (a script with CRLF, YAML) and one pair of quotes around all of it (quoted twice, or where no
// shell removes them).
absl::string_view TrimValue(absl::string_view text);

// Returns `path` with a leading "~" replaced by `home`, the value of HOME. A shell expands it at the start of a word
// only, neither after "--flag=" nor in YAML. InvalidArgument: the path begins with "~", but not with "~/", or `home` is
// empty; one line that quotes the path.
absl::StatusOr<std::string> ExpandHome(absl::string_view path, absl::string_view home);

// Extracts the cause from the message of a gRPC status: "Connection refused" from "failed to connect to all
// addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused". Returns a
// part of `message`, or all of it if it has no such wrapping.
absl::string_view GrpcCause(absl::string_view message);

// Returns a new random name of 32 lower-case hexadecimal digits (128 bits from the kernel). Thread-safe.
std::string RandomId();

}  // namespace ddprun

#endif  // DDPRUN_BASE_TEXT_H_

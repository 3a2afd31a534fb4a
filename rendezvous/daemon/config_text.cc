#include "rendezvous/daemon/config_text.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

// Reads the text from its beginning to its end, once.
class Parser {
 public:
  explicit Parser(absl::string_view text) : rest_(text) {}

  absl::StatusOr<std::vector<ConfigEntry>> Run() {
    std::vector<ConfigEntry> entries;
    while (SkipToText()) {
      absl::StatusOr<ConfigEntry> entry = ReadEntry();
      if (!entry.ok()) return entry.status();
      for (const ConfigEntry& earlier : entries) {
        if (earlier.key != entry->key) continue;
        return Error(entry->line, absl::StrCat("'", entry->key, "' is already set in line ", earlier.line));
      }
      entries.push_back(*std::move(entry));
    }
    return entries;
  }

 private:
  static bool InWord(char c) {
    return absl::ascii_isgraph(c) && absl::string_view("#,[]\"'=").find(c) == std::string::npos;
  }

  static absl::Status Error(int line, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(line, ": ", what));
  }
  absl::Status Error(absl::string_view what) const { return Error(line_, what); }

  char Next() const { return rest_.empty() ? '\0' : rest_.front(); }
  void Skip() {
    if (Next() == '\n') ++line_;
    rest_.remove_prefix(1);
  }
  void SkipBlanks() {
    while (Next() == ' ' || Next() == '\t' || Next() == '\r') Skip();
    if (Next() != '#') return;
    while (!rest_.empty() && Next() != '\n') Skip();
  }
  // Over blanks, comments and line ends; false at the end of the text.
  bool SkipToText() {
    for (SkipBlanks(); Next() == '\n'; SkipBlanks()) Skip();
    return !rest_.empty();
  }

  absl::StatusOr<ConfigEntry> ReadEntry() {
    if (Next() == '[') return Error("sections are not supported; write KEY = VALUE lines only");
    ConfigEntry entry;
    entry.line = line_;
    while (absl::ascii_isalnum(Next()) || Next() == '-' || Next() == '_') {
      entry.key.push_back(Next());
      Skip();
    }
    SkipBlanks();
    if (entry.key.empty() || Next() != '=') return Error("expected KEY = VALUE");
    Skip();
    SkipBlanks();
    if (absl::Status status = Next() == '[' ? ReadList(&entry.values) : ReadValue(&entry.values); !status.ok()) {
      return status;
    }
    SkipBlanks();
    if (!rest_.empty() && Next() != '\n') {
      return Error(absl::StrCat("unexpected text after the value of '", entry.key,
                                "'; quote a value with spaces or special characters"));
    }
    return entry;
  }

  absl::Status ReadList(std::vector<std::string>* values) {
    const int begin = line_;
    const absl::Status open = Error(begin, "the list has no closing ']'");
    Skip();
    while (SkipToText() && Next() != ']') {
      if (absl::Status status = ReadValue(values); !status.ok()) return status;
      if (!SkipToText()) return open;
      if (Next() == ',') {
        Skip();
      } else if (Next() != ']') {
        return Error("expected ',' or ']' in the list");
      }
    }
    if (rest_.empty()) return open;
    Skip();
    if (values->empty()) return Error(begin, "the list is empty");
    return absl::OkStatus();
  }

  absl::Status ReadValue(std::vector<std::string>* values) {
    std::string value;
    const char quote = Next();
    if (quote == '"' || quote == '\'') {
      Skip();
      while (Next() != quote) {
        if (rest_.empty() || Next() == '\n') return Error(absl::StrCat("no closing ", std::string(1, quote)));
        if (quote == '"' && Next() == '\\') {
          Skip();
          if (Next() != '"' && Next() != '\\')
            return Error("only \\\" and \\\\ may follow a backslash in double quotes");
        }
        value.push_back(Next());
        Skip();
      }
      Skip();
    } else {
      for (; InWord(Next()); Skip()) value.push_back(Next());
      if (value.empty()) return Error("expected a value");
    }
    values->push_back(std::move(value));
    return absl::OkStatus();
  }

  absl::string_view rest_;
  int line_ = 1;
};

}  // namespace

absl::StatusOr<std::vector<ConfigEntry>> ParseConfigText(absl::string_view text) { return Parser(text).Run(); }

}  // namespace ddprun::rendezvous

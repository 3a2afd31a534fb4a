// The listings of docs/worker_runtime.md and README.md are the compiled code. Each is enclosed in ```LANGUAGE and ```,
// and the line before it names its source:
//   <!-- part of FILE -->  some lines of the file, possibly with another indentation
//   <!-- FILE -> FILE -->  a difference: the hunks between lines of @@ turn the first file into the second
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

struct Listing {
  std::string origin;
  std::vector<std::string> lines;
};

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(absl::StripSuffix(text, "\n"), '\n'); }

std::vector<Listing> ReadListings(const std::string& document) {
  std::vector<Listing> listings;
  bool inside = false;
  std::string before;
  for (const std::string& line : Lines(ReadFile(document))) {
    if (absl::StartsWith(line, "```")) {
      inside = !inside;
      if (inside) {
        absl::string_view origin = before;
        EXPECT_TRUE(absl::ConsumePrefix(&origin, "<!-- ") && absl::ConsumeSuffix(&origin, " -->"))
            << "a listing of unknown origin, after: " << before;
        listings.push_back({std::string(origin), {}});
      }
    } else if (inside) {
      listings.back().lines.push_back(line);
    }
    before = line;
  }
  EXPECT_FALSE(inside);
  return listings;
}

std::string WithoutIndentation(const std::vector<std::string>& lines) {
  std::string text = "\n";
  for (const std::string& line : lines) absl::StrAppend(&text, absl::StripAsciiWhitespace(line), "\n");
  return text;
}

// The first file with the difference applied; empty if it does not fit.
std::string Apply(const std::vector<std::string>& difference, std::string text) {
  size_t at = 0;
  std::string was, becomes;
  const auto replace = [&] {
    const size_t found = was.empty() ? at : text.find(was, at);
    if (found == std::string::npos) return false;
    text.replace(found, was.size(), becomes);
    at = found + becomes.size();
    was.clear();
    becomes.clear();
    return true;
  };
  for (const std::string& line : difference) {
    if (absl::StartsWith(line, "@@")) {
      if (!replace()) return "";
      continue;
    }
    const std::string content = line.empty() ? "" : line.substr(1);
    if (line.empty() || line[0] != '+') absl::StrAppend(&was, content, "\n");
    if (line.empty() || line[0] != '-') absl::StrAppend(&becomes, content, "\n");
  }
  return replace() ? text : "";
}

TEST(ListingsTest, EveryListingIsTheCompiledFile) {
  std::vector<Listing> listings = ReadListings("docs/worker_runtime.md");
  EXPECT_GE(listings.size(), 4);
  for (Listing& listing : ReadListings("README.md")) listings.push_back(std::move(listing));
  for (const Listing& listing : listings) {
    SCOPED_TRACE(listing.origin);
    const std::vector<std::string> files = absl::StrSplit(listing.origin, " -> ");
    absl::string_view file = listing.origin;
    if (files.size() == 2) {
      EXPECT_EQ(Apply(listing.lines, ReadFile(files[0])), ReadFile(files[1]));
    } else {
      ASSERT_TRUE(absl::ConsumePrefix(&file, "part of "));
      const std::string whole = WithoutIndentation(Lines(ReadFile(std::string(file))));
      EXPECT_TRUE(absl::StrContains(whole, WithoutIndentation(listing.lines))) << absl::StrJoin(listing.lines, "\n");
    }
  }
}

// The headers that the umbrella headers include.
TEST(ApiTest, EveryPublicHeaderIsListed) {
  const std::string page = ReadFile("docs/api.md");
  int headers = 0;
  for (const char* umbrella : {"worker_runtime/worker_runtime.h", "worker_runtime/extras/extras.h"}) {
    for (absl::string_view line : Lines(ReadFile(umbrella))) {
      if (!absl::ConsumePrefix(&line, "#include \"worker_runtime/") || !absl::ConsumeSuffix(&line, "\"")) continue;
      if (line == "extras/extras.h") continue;
      EXPECT_TRUE(absl::StrContains(page, absl::StrCat("| `", line, "` |"))) << line;
      ++headers;
    }
  }
  size_t listed = 0;
  for (size_t at = page.find(".h` |"); at != std::string::npos; at = page.find(".h` |", at + 1)) ++listed;
  EXPECT_EQ(listed, headers) << "the page lists headers that are not public";
}

}  // namespace
}  // namespace ddprun::testing

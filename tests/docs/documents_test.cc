// Claims of documents that must be true: tables of flags, listings of code, lists of headers and defaults.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "launcher/config/flag_table.h"
#include "launcher/config/rdzv_conf.h"
#include "launcher/machine/server_line.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

// The listings of docs/worker_runtime.md and README.md are the compiled code. Each is enclosed in ```LANGUAGE and ```,
// and the line before it names its source:
//   <!-- part of FILE -->  some lines of the file, possibly with another indentation
//   <!-- FILE -> FILE -->  a difference: the hunks between lines of @@ turn the first file into the second

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

TEST(ListingsTest, Listings_AllDocs_EqualCompiledFiles) {
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
TEST(ApiTest, PublicHeaders_All_AreListed) {
  const std::string page = ReadFile("docs/api.md");
  int headers = 0;
  for (const char* umbrella : {"worker_runtime/worker_runtime.h", "worker_runtime/extras/extras.h"}) {
    for (absl::string_view line : Lines(ReadFile(umbrella))) {
      if (!absl::ConsumePrefix(&line, "#include \"") || !absl::ConsumeSuffix(&line, "\"")) continue;
      absl::ConsumePrefix(&line, "worker_runtime/");
      if (line == "extras/extras.h") continue;
      EXPECT_TRUE(absl::StrContains(page, absl::StrCat("| `", line, "` |"))) << line;
      ++headers;
    }
  }
  size_t listed = 0;
  for (size_t at = page.find(".h` |"); at != std::string::npos; at = page.find(".h` |", at + 1)) ++listed;
  EXPECT_EQ(listed, headers) << "the page lists headers that are not public";
}

// docs/from_torchrun.md has every flag of ddprun and torchrun. (scripts/check finds the tests that it
// names.) Flags that only ddprun has are few, and the documents show a command that uses each of them.

// Flags of torchrun 2.15.
constexpr char kTorchrunsFlags[] =
    "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts monitor-interval "
    "start-method event-log-handler role module no-python run-path log-dir redirects tee log-line-prefix-template "
    "local-ranks-filter duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr master-port "
    "local-addr logs-specs numa-binding signals-to-handle shutdown-timeout virtual-local-rank print-completion "
    "help";

TEST(FromTorchrunTest, Document_EveryFlag_IsNamed) {
  const std::string document = ReadFile("docs/from_torchrun.md");
  ASSERT_FALSE(document.empty());
  const auto expect = [&](const std::string& flag) {
    EXPECT_TRUE(absl::StrContains(document, absl::StrCat("`--", flag, "`"))) << flag;
  };
  for (const absl::string_view flag : absl::StrSplit(kTorchrunsFlags, ' ')) expect(std::string(flag));
  for (const launcher::Flag& flag : launcher::Flags()) expect(flag.name);
}

// The words of torchrun_settings.py's line `name`.
std::set<std::string> Settings(const std::string& out, const std::string& name) {
  for (const absl::string_view line : absl::StrSplit(out, '\n')) {
    if (absl::StartsWith(line, name + " ")) return absl::StrSplit(line.substr(name.size() + 1), ' ');
  }
  ADD_FAILURE() << "no " << name << " in " << out;
  return {};
}

TEST(FromTorchrunTest, EveryFlagVariableAndKey_IsTakenOrNamed) {
  std::string site;
  std::error_code error;
  for (const auto& version : std::filesystem::directory_iterator(SourceRoot() + "/.venv/lib", error)) {
    site = version.path() / "site-packages";
  }
  if (site.empty()) GTEST_SKIP() << "no .venv with torch (scripts/setup makes one)";
  Process program({"/usr/bin/python3", "tests/docs/torchrun_settings.py", site});
  ASSERT_EQ(program.Wait(), 0) << program.Err();
  const std::string out = program.Out();

  std::set<std::string> flags = absl::StrSplit(kTorchrunsFlags, ' ');
  std::set<std::string> taken = {"help", "print-completion"};
  for (const launcher::Flag& flag : launcher::Flags()) taken.insert(flag.name);
  for (const std::string& flag : flags) EXPECT_TRUE(taken.contains(flag)) << "ddprun does not take --" << flag;
  flags.erase("help");
  EXPECT_EQ(Settings(out, "flags"), flags) << "kTorchrunsFlags are those of another version";

  const std::string document = ReadFile("docs/from_torchrun.md");
  for (const std::string& variable : Settings(out, "variables")) {
    EXPECT_TRUE(absl::StrContains(document, absl::StrCat("`", variable, "`"))) << variable;
  }
  for (const std::string& key : Settings(out, "keys")) {
    const auto conf = launcher::ParseRdzvConf(absl::StrCat(key, key == "store_type" ? "=tcp" : "=1"));
    EXPECT_TRUE(conf.ok()) << conf.status();
  }
}

// The indented lines of all documents: commands and their output.
std::string Examples() {
  std::string examples;
  for (const auto& file : std::filesystem::directory_iterator("docs")) {
    if (file.path().extension() != ".md") continue;
    const std::string document = ReadFile(file.path().string());
    for (const absl::string_view line : absl::StrSplit(document, '\n')) {
      if (absl::StartsWith(line, "    ")) absl::StrAppend(&examples, line, "\n");
    }
  }
  return examples;
}

TEST(FromTorchrunTest, OwnFlags_AtMostFifteen_AreShownInUse) {
  constexpr int kMostOwnFlags = 15;
  const std::string examples = Examples();
  const std::set<std::string> torchruns = absl::StrSplit(kTorchrunsFlags, ' ');
  int own = 0;
  for (const launcher::Flag& flag : launcher::Flags()) {
    if (torchruns.contains(flag.name)) continue;
    ++own;
    EXPECT_TRUE(absl::StrContains(examples, absl::StrCat(" --", flag.name))) << flag.name;
  }
  EXPECT_LE(own, kMostOwnFlags) << "see docs/architecture.md, To add X, touch Y";
}

// The documented reconnect timeout is the same in all places.

using launcher::ServerLine;

TEST(ReconnectTimeoutTest, DocsAndAlerts_Defaults_AreThoseOfTheCode) {
  const std::string minutes = absl::StrCat(ServerLine::kServerReturns / absl::Minutes(1), " minutes");
  const std::string seconds = absl::StrCat(ServerLine::kHostedServerReturns / absl::Seconds(1), " s");
  const auto says = [](const std::string& file, const std::string& text) {
    EXPECT_TRUE(absl::StrContains(absl::StrReplaceAll(ReadFile(file), {{"\n", " "}}), text)) << file << ": " << text;
  };
  says("docs/rendezvousd.md", absl::StrCat("for ", minutes, " (`reconnect_timeout`), with or without workers"));
  says("docs/rendezvousd.md", absl::StrCat("A server inside a launcher is looked for ", seconds));
  says("docs/failure_model.md", absl::StrCat("(", minutes, " for a `rendezvousd`, ", seconds, " for a server in"));
  says("docs/restarts.md", absl::StrCat("| `reconnect_timeout` | ", ServerLine::kServerReturns / absl::Seconds(1), "; ",
                                        ServerLine::kHostedServerReturns / absl::Seconds(1), " if"));
  for (const char* alert : {"exit after ", "Launchers exit after "}) {
    says("packaging/monitoring/alerts.yaml", absl::StrCat(alert, minutes, " without"));
  }
}

}  // namespace
}  // namespace ddprun::testing

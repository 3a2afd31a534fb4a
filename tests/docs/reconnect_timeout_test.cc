// The documented reconnect timeout is the same in all places.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "launcher/machine/server_line.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

using launcher::ServerLine;

TEST(ReconnectTimeoutTest, DocumentsAndAlerts_SayTheDefaults) {
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

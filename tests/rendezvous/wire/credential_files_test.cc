#include "rendezvous/wire/credential_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/security/certificates.h"

namespace ddprun::rendezvous {
namespace {

using testing::NewFolder;
using testing::StallReaders;
using testing::TestCa;
using testing::WriteFile;

const char kOld[] = "an-old-token-of-this-test";
const char kNew[] = "a-new-token-of-this-test";
const char kOther[] = "another-token-of-this-test";

std::string Problem(const Credentials& credentials, CredentialSide side = CredentialSide::kBoth) {
  std::vector<std::string> warnings;
  const absl::Status status = CheckCredentials(credentials, side, &warnings);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(TokensTest, Accept_OnlyTheTokenItself) {
  Tokens tokens(Credentials{.token = kOld});
  EXPECT_EQ(tokens.OwnToken(), kOld);
  EXPECT_TRUE(tokens.Accept(kOld));
  EXPECT_FALSE(tokens.Accept(kNew));
  EXPECT_FALSE(tokens.Accept(""));
  EXPECT_FALSE(tokens.Accept(std::string(kOld) + "x"));
  EXPECT_FALSE(tokens.Accept(std::string(kOld).substr(1)));
}

TEST(TokensTest, NoTokens_AcceptNothing) {
  Tokens tokens(Credentials{});
  EXPECT_FALSE(tokens.Accept(""));
}

TEST(TokensTest, FileChanges_AreSeen) {
  const std::string path = NewFolder("tokens") + "/token";
  WriteFile(path, std::string(kOld) + "\n");
  Tokens tokens(Credentials{.token_file = path});
  EXPECT_EQ(tokens.OwnToken(), kOld);
  WriteFile(path, std::string(kNew) + "\n\n" + kOld + "\n");
  EXPECT_TRUE(tokens.Accept(kNew));
  EXPECT_TRUE(tokens.Accept(kOld));
  EXPECT_EQ(tokens.OwnToken(), kNew);
  WriteFile(path, kNew);
  EXPECT_FALSE(tokens.Accept(kOld));
  WriteFile(path, "short");  // no token: what was read before counts
  EXPECT_TRUE(tokens.Accept(kNew));
  remove(path.c_str());
  EXPECT_TRUE(tokens.Accept(kNew));
}

TEST(TokensTest, FileStalls_WhatWasReadLastCounts) {
  const std::string path = NewFolder("tokens") + "/token";
  WriteFile(path, kOld);
  Tokens tokens(Credentials{.token_file = path});
  EXPECT_TRUE(tokens.Accept(kOld));
  StallReaders(path);
  EXPECT_TRUE(tokens.Accept(kOld));
  EXPECT_EQ(tokens.OwnToken(), kOld);
  EXPECT_EQ(tokens.Check(kNew).status().code(), absl::StatusCode::kUnavailable);
  std::ofstream(path) << kNew;
  while (!tokens.Accept(kNew)) {
  }
  EXPECT_FALSE(tokens.Accept(kOld));
}

TEST(TokensTest, Lines_GiveRoleAndName) {
  const std::string path = NewFolder("tokens") + "/token";
  WriteFile(path, absl::StrCat("launcher:alice ", kNew, "\n", kOld, "\n  read:grafana-1.x_y\t", kOther, " \n"));
  Tokens tokens(Credentials{.token_file = path});
  EXPECT_EQ(tokens.OwnToken(), kNew);
  const std::optional<Caller> alice = tokens.Accept(kNew), nameless = tokens.Accept(kOld), page = tokens.Accept(kOther);
  ASSERT_TRUE(alice && nameless && page);
  EXPECT_EQ(alice->role, Role::kLauncher);
  EXPECT_EQ(alice->name, "alice");
  EXPECT_EQ(nameless->role, Role::kAdmin);
  EXPECT_EQ(nameless->name, "");
  EXPECT_EQ(page->role, Role::kRead);
  EXPECT_EQ(page->name, "grafana-1.x_y");
  EXPECT_FALSE(tokens.Accept(absl::StrCat("launcher:alice ", kNew)));
}

TEST(TokensTest, FileBecomesUnusable_OneWarning_TokensRemain) {
  const std::string path = NewFolder("tokens") + "/token";
  WriteFile(path, absl::StrCat("read:page ", kOld));
  Tokens tokens(Credentials{.token_file = path});
  EXPECT_TRUE(tokens.Accept(kOld));
  WriteFile(path, absl::StrCat("read:page ", kOld, "\nroot:ops ", kNew));
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(tokens.Accept(kOld));
  EXPECT_TRUE(tokens.Accept(kOld));
  EXPECT_FALSE(tokens.Accept(kNew));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(absl::StrContains(log, absl::StrCat(path, ":2: a line must be TOKEN or ROLE:NAME TOKEN"))) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST(CheckCredentialsTest, TokenLines_ProblemsAreNamedWithTheLineWithoutTheToken) {
  const std::string path = NewFolder("tokens") + "/token";
  const std::string lines[][2] = {{"root:ops ", "ROLE is read, launcher or admin"},
                                  {"Admin:ops ", "ROLE is read, launcher or admin"},
                                  {"admin ", "ROLE is read, launcher or admin"},
                                  {"admin: ", "NAME has letters, digits and ._- only"},
                                  {"admin:a/b ", "NAME has letters, digits and ._- only"},
                                  {"admin:ops too ", "must be TOKEN or ROLE:NAME TOKEN"},
                                  {absl::StrCat(kOld, " "), "must be TOKEN or ROLE:NAME TOKEN"},
                                  {"admin:ops x", "1 characters"}};
  for (const auto& [line, why] : lines) {
    WriteFile(path, absl::StrCat("\n", line, line.back() == ' ' ? kNew : "", "\n"));
    const std::string problem = Problem({.token_file = path});
    EXPECT_TRUE(absl::StartsWith(problem, absl::StrCat(path, ":2: "))) << problem;
    EXPECT_TRUE(absl::StrContains(problem, why)) << line << ": " << problem;
    EXPECT_FALSE(absl::StrContains(problem, kNew) || absl::StrContains(problem, kOld)) << problem;
  }
  WriteFile(path, absl::StrCat("read:page ", kNew, "\n", kNew));
  EXPECT_EQ(Problem({.token_file = path}),
            absl::StrCat(path, ":2: the token is in a line before; remove one of the two"));
}

TEST(CheckCredentialsTest, Token_ProblemsAreNamedWithoutTheToken) {
  const std::string path = NewFolder("tokens") + "/token";
  EXPECT_TRUE(absl::StrContains(Problem({.token_file = path}), path));
  for (const std::string token : {"short-secret", "a token with blanks in it", ""}) {
    WriteFile(path, token);
    const std::string problem = Problem({.token_file = path});
    EXPECT_TRUE(absl::StrContains(problem, path)) << problem;
    EXPECT_TRUE(token.empty() || !absl::StrContains(problem, token)) << problem;
  }
  EXPECT_TRUE(absl::StrContains(Problem({.token = "short-secret"}), "DDPRUN_TOKEN"));
  WriteFile(path, kOld);
  EXPECT_EQ(Problem({.token_file = path}), "");
  EXPECT_EQ(Problem({.token = kOld}), "");
}

TEST(CheckCredentialsTest, FileOthersCanRead_Warning) {
  const std::string path = NewFolder("tokens") + "/token";
  WriteFile(path, kOld);
  std::vector<std::string> warnings;
  EXPECT_TRUE(CheckCredentials({.token_file = path}, CredentialSide::kClient, &warnings).ok());
  EXPECT_TRUE(warnings.empty());
  chmod(path.c_str(), 0644);
  EXPECT_TRUE(CheckCredentials({.token_file = path}, CredentialSide::kClient, &warnings).ok());
  ASSERT_EQ(warnings.size(), 1);
  EXPECT_TRUE(absl::StrContains(warnings[0], path)) << warnings[0];
}

TEST(CheckCredentialsTest, Tls_WhatDoesNotFitIsNamed) {
  TestCa ca(NewFolder("ca"));
  ca.Issue("a", "DNS:a");
  ca.Issue("b", "DNS:b");
  ca.Issue("old", "DNS:old", absl::Now() - absl::Hours(1));
  const std::string garbage = NewFolder("garbage") + "/file";
  WriteFile(garbage, "no certificate");
  const auto tls = [&](std::string cert, std::string key, std::string root) {
    return Credentials{.tls_cert = std::move(cert), .tls_key = std::move(key), .tls_ca = std::move(root)};
  };
  EXPECT_EQ(Problem(tls(ca.cert("a"), ca.key("a"), ca.ca())), "");
  EXPECT_TRUE(absl::StrContains(Problem(tls(ca.cert("a"), ca.key("b"), ca.ca())), "does not match certificate"));
  EXPECT_TRUE(absl::StrContains(Problem(tls(ca.cert("old"), ca.key("old"), ca.ca())), "has expired"));
  EXPECT_TRUE(absl::StrContains(Problem(tls(garbage, ca.key("a"), ca.ca())), garbage));
  EXPECT_TRUE(absl::StrContains(Problem(tls(ca.cert("a"), garbage, ca.ca())), garbage));
  EXPECT_TRUE(absl::StrContains(Problem(tls(ca.cert("a"), ca.key("a"), garbage)), garbage));
  EXPECT_TRUE(absl::StrContains(Problem(tls(ca.cert("a"), "", ca.ca())), "--tls-key"));
  EXPECT_TRUE(absl::StrContains(Problem(tls("", "", ca.ca())), "--tls-cert"));
  EXPECT_EQ(Problem(tls("", "", ca.ca()), CredentialSide::kClient), "");
  EXPECT_EQ(Problem(tls(ca.cert("a"), ca.key("a"), ""), CredentialSide::kServer), "");
  EXPECT_TRUE(absl::StrContains(Problem(tls(ca.cert("a"), ca.key("a"), "")), "--tls-ca"));
  Credentials names = tls(ca.cert("a"), ca.key("a"), "");
  names.tls_allowed_names = {"a"};
  EXPECT_TRUE(absl::StrContains(Problem(names, CredentialSide::kServer), "--tls-allowed-names"));
}

}  // namespace
}  // namespace ddprun::rendezvous

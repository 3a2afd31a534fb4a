// Flags and configuration file of rendezvousd, and the checks of --check-config.

#include "rendezvous/daemon/rendezvousd_options.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/wire/credential_files.h"
#include "tests/testing/process.h"

namespace ddprun::rendezvous {
namespace {

using Strings = std::vector<std::string>;
using ::ddprun::testing::TempDir;

// "line key=value|value" of each entry, or the error.
std::string Shown(const std::string& text) {
  const absl::StatusOr<std::vector<ConfigEntry>> entries = ParseConfigText(text);
  if (!entries.ok()) return std::string(entries.status().message());
  std::string shown;
  for (const ConfigEntry& entry : *entries) {
    absl::StrAppend(&shown, entry.line, " ", entry.key, "=");
    for (size_t i = 0; i < entry.values.size(); ++i) absl::StrAppend(&shown, i ? "|" : "", entry.values[i]);
    absl::StrAppend(&shown, ";");
  }
  return shown;
}

TEST(ConfigTextTest, Entries_AreReadWithTheirLines) {
  EXPECT_EQ(Shown(""), "");
  EXPECT_EQ(Shown("# nothing\n\n  \t\r\n"), "");
  EXPECT_EQ(Shown("a=b"), "1 a=b;");
  EXPECT_EQ(Shown("\n key-1 = 127.0.0.1:0 # why\r\nb_2=\"x y # z\""), "2 key-1=127.0.0.1:0;3 b_2=x y # z;");
  EXPECT_EQ(Shown("a = 'c:\\d'\nb = \"q\\\"\\\\\"\nc = ''"), "1 a=c:\\d;2 b=q\"\\;3 c=;");
  EXPECT_EQ(Shown("a = [1, \"[::1]:0\",\n  # more\n  'z',\n]\nb = 2\n"), "1 a=1|[::1]:0|z;5 b=2;");
}

TEST(ConfigTextTest, WrongText_SaysLineAndReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\n[server]\n", "2: sections are not supported; write KEY = VALUE lines only"},
      {"listen", "1: expected KEY = VALUE"},
      {"= 3", "1: expected KEY = VALUE"},
      {"a =\nb = 1", "1: expected a value"},
      {"a = b c", "1: unexpected text after the value of 'a'; quote a value with spaces or special characters"},
      {"a = 1, 2", "1: unexpected text after the value of 'a'; quote a value with spaces or special characters"},
      {"a = \"b\nc\"", "1: no closing \""},
      {"a = \"\\n\"", "1: only \\\" and \\\\ may follow a backslash in double quotes"},
      {"a = [1,\n2", "1: the list has no closing ']'"},
      {"a = [1", "1: the list has no closing ']'"},
      {"a = [\n1 2]", "2: expected ',' or ']' in the list"},
      {"a = [ ]", "1: the list is empty"},
      {"a = 1\nb = 2\na = 3", "3: 'a' is already set in line 1"},
      {std::string("a = \0", 5), "1: expected a value"}};
  for (const auto& [text, error] : cases) EXPECT_EQ(Shown(text), error) << text;
}

class OptionsTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_.File(name)) << text;
    chmod(dir_.File(name).c_str(), 0600);
    return dir_.File(name);
  }
  static RendezvousdOptions Parse(const Strings& arguments) {
    const absl::StatusOr<RendezvousdCommandLine> line = ParseRendezvousdOptions(arguments);
    EXPECT_TRUE(line.ok()) << line.status();
    return line.ok() ? line->options : RendezvousdOptions();
  }
  static std::string Error(const Strings& arguments) {
    return std::string(ParseRendezvousdOptions(arguments).status().message());
  }
  // Error of --check-config.
  static std::string CheckError(const RendezvousdOptions& options) {
    Strings warnings;
    return std::string(CheckRendezvousdOptions(options, &warnings).message());
  }

  TempDir dir_;
};

TEST_F(OptionsTest, Etcd_NeedsAnAddressThatLaunchersReach) {
  const std::string etcd = "--etcd=etcd1:2379", everywhere = "--listen=0.0.0.0:29400";
  EXPECT_EQ(CheckError(Parse({etcd})), "");
  EXPECT_EQ(CheckError(Parse({etcd, everywhere, "--advertise=node1:29400"})), "");
  for (const std::string wildcard : {"0.0.0.0:29400", "[::]:29400"}) {
    const std::string error = absl::StrCat("launchers can't reach ", wildcard, ": give --advertise=HOST:PORT");
    EXPECT_TRUE(absl::StartsWith(CheckError(Parse({etcd, "--listen=" + wildcard})), error)) << error;
    EXPECT_TRUE(absl::StartsWith(CheckError(Parse({etcd, "--advertise=" + wildcard})), error)) << error;
  }
  EXPECT_TRUE(absl::StartsWith(CheckError(Parse({etcd, "--advertise=node1:0"})), "--advertise needs the port"));
}

TEST_F(OptionsTest, File_OptionsNotInFlags_AreTaken) {
  const std::string file = Write("c", R"(
listen = ["127.0.0.1:1", "[::1]:2"]
log-level = debug
state-dir = "/var/lib/ddp run"
tls-allowed-names = ["a", "b"]
)");
  RendezvousdOptions options = Parse({"--config", file});
  EXPECT_EQ(options.listen, (Strings{"127.0.0.1:1", "[::1]:2"}));
  EXPECT_EQ(options.log_level, "debug");
  EXPECT_EQ(options.state_dir, "/var/lib/ddp run");
  EXPECT_EQ(options.credentials.tls_allowed_names, (Strings{"a", "b"}));
  options = Parse({"--listen=127.0.0.1:3", "--config", file, "--log-level", "ERROR"});
  EXPECT_EQ(options.listen, Strings{"127.0.0.1:3"});
  EXPECT_EQ(options.log_level, "ERROR");
  EXPECT_EQ(options.state_dir, "/var/lib/ddp run");
  EXPECT_EQ(Parse({"--config", Write("d", "tls-allowed-names = \"a,b\"")}).credentials.tls_allowed_names,
            (Strings{"a", "b"}));
}

TEST_F(OptionsTest, Values_AreTrimmedAndHomeIsExpanded) {
  setenv("HOME", "/home/me", 1);
  RendezvousdOptions options = Parse({"--listen='127.0.0.1:1'\r", "--state-dir=~/state\r", "--token-file=~/t"});
  EXPECT_EQ(options.listen, Strings{"127.0.0.1:1"});
  EXPECT_EQ(options.state_dir, "/home/me/state");
  EXPECT_EQ(options.credentials.token_file, "/home/me/t");
  EXPECT_EQ(Parse({"--config", Write("c", "state-dir = ~/s\n")}).state_dir, "/home/me/s");
  EXPECT_TRUE(absl::StrContains(Error({"--state-dir=~you/state"}), "'~you/state': only your own home"));
  setenv("DDPRUN_TOKEN_FILE", "~/tokens\n", 1);
  Credentials credentials;
  TakeTokenFromEnvironment(&credentials);
  EXPECT_EQ(credentials.token_file, "/home/me/tokens");
}

TEST_F(OptionsTest, WrongFile_FileLineAndReason) {
  const std::string file = dir_.File("c");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"# x\n\nlisten_on = 1", ":3: unknown option 'listen_on' (see rendezvousd --help)"},
      {"log-level = INFO\nlisten = nonsense", ":2: --listen: "},
      {"log-level = loud", ":1: --log-level: "},
      {"log-level = [INFO, ERROR]", ":1: --log-level"},
      {"config = c", ":1: 'config' is valid on the command line only"},
      {"check-config = true", ":1: 'check-config' is valid on the command line only"},
      {"help = true", ":1: 'help' is valid on the command line only"},
      {"version = true", ":1: 'version' is valid on the command line only"},
      {"[x]", ":1: sections are not supported"}};
  for (const auto& [text, error] : cases) {
    Write("c", text);
    EXPECT_TRUE(absl::StartsWith(Error({"--config", file}), absl::StrCat(file, error)))
        << Error({"--config", file}) << " for " << text;
  }
  EXPECT_EQ(Error({"--config", dir_.File("none")}),
            absl::StrCat("can't read --config ", dir_.File("none"), ": No such file or directory"));
  EXPECT_EQ(Error({"--config", dir_.path()}), absl::StrCat("can't read --config ", dir_.path(), ": Is a directory"));
}

TEST_F(OptionsTest, HelpAndVersion_AreAnswers) {
  EXPECT_TRUE(absl::StartsWith(ParseRendezvousdOptions({"--version"})->answer, "rendezvousd "));
  const std::string help = ParseRendezvousdOptions({"--help"})->answer;
  for (const char* flag : {"--listen", "--state-dir", "--config", "--check-config", "--token-file"}) {
    EXPECT_TRUE(absl::StrContains(help, flag)) << flag;
  }
  EXPECT_EQ(ParseRendezvousdOptions({})->answer, "");
}

TEST_F(OptionsTest, Check_CredentialsAndDirectories) {
  RendezvousdOptions options;
  options.credentials.token_file = dir_.File("none");
  EXPECT_EQ(CheckError(options), absl::StrCat("can't read ", dir_.File("none"), ": No such file or directory"));
  options.credentials.token_file = dir_.path();
  EXPECT_EQ(CheckError(options), absl::StrCat("can't read ", dir_.path(), ": Is a directory"));
  options.credentials.token_file = Write("token", "0123456789abcdef\n");
  EXPECT_EQ(CheckError(options), "");
  options.state_dir = dir_.File("to_be_created");
  EXPECT_EQ(CheckError(options), "");
  options.state_dir = dir_.File("to_be_created/");
  EXPECT_EQ(CheckError(options), "");
  options.state_dir = dir_.File("none/state");  // the server makes one folder, not those above
  EXPECT_EQ(CheckError(options), absl::StrCat("--state-dir ", dir_.File("none/state"), ": there is no directory ",
                                              dir_.File("none"), "; create it"));
  options.state_dir = dir_.File("token");
  EXPECT_EQ(CheckError(options), absl::StrCat("--state-dir ", dir_.File("token"), " is not a directory"));
}

TEST_F(OptionsTest, Token_FlagWinsOverVariablesWhichAreTaken) {
  setenv("DDPRUN_TOKEN", "token-of-the-variable", 1);
  setenv("DDPRUN_TOKEN_FILE", "/a", 1);
  Credentials credentials;
  TakeTokenFromEnvironment(&credentials);
  EXPECT_EQ(credentials.token, "token-of-the-variable");
  EXPECT_EQ(credentials.token_file, "");
  EXPECT_EQ(getenv("DDPRUN_TOKEN"), nullptr);
  setenv("DDPRUN_TOKEN_FILE", "/a", 1);
  credentials = {};
  TakeTokenFromEnvironment(&credentials);
  EXPECT_EQ(credentials.token_file, "/a");
  setenv("DDPRUN_TOKEN", "token-of-the-variable", 1);
  credentials = {};
  credentials.token_file = "/b";
  TakeTokenFromEnvironment(&credentials);
  EXPECT_EQ(credentials.token, "");
  EXPECT_EQ(credentials.token_file, "/b");
}

}  // namespace
}  // namespace ddprun::rendezvous

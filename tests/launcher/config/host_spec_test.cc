#include "launcher/config/host_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;

std::string ErrorOf(const absl::StatusOr<std::vector<HostSpec>>& hosts) {
  return hosts.ok() ? "no error" : std::string(hosts.status().message());
}

TEST(HostSpecTest, ParseHosts_NamesUsersAndSlots_AreRead) {
  EXPECT_THAT(*ParseHosts("a,b:8, me@c:2"), ElementsAre(HostSpec{"a", {}}, HostSpec{"b", 8}, HostSpec{"me@c", 2}));
  EXPECT_THAT(
      *ParseHosts("10.0.0.1:4,fd00::1,[fd00::2]:3,[fd00::3]"),
      ElementsAre(HostSpec{"10.0.0.1", 4}, HostSpec{"fd00::1", {}}, HostSpec{"fd00::2", 3}, HostSpec{"fd00::3", {}}));
}

TEST(HostSpecTest, ParseHosts_InvalidText_IsAnErrorOfOneLine) {
  EXPECT_EQ(ErrorOf(ParseHosts("a,,b")), "'' is not the name of a host");
  EXPECT_EQ(ErrorOf(ParseHosts("-oProxyCommand=x")), "'-oProxyCommand=x' is not the name of a host");
  EXPECT_EQ(ErrorOf(ParseHosts("a b")), "'a b' is not the name of a host");
  EXPECT_EQ(ErrorOf(ParseHosts("it's")), "'it's' is not the name of a host");
  EXPECT_TRUE(absl::StrContains(ErrorOf(ParseHosts("a:0")), "'a:0': number of workers: "));
  EXPECT_TRUE(absl::StrContains(ErrorOf(ParseHosts("a:x")), "'a:x': number of workers: "));
  EXPECT_EQ(ErrorOf(ParseHosts("a,b,a")),
            "'a' is given twice: each host runs one launcher; give a:N for N workers there");
}

TEST(HostSpecTest, ParseHostFile_OtherProgramsFormats_AreRead) {
  EXPECT_THAT(*ParseHostFile("# cluster\nworker-1 slots=4\nworker-2  slots=8 max_slots=9 # two\n\n"),
              ElementsAre(HostSpec{"worker-1", 4}, HostSpec{"worker-2", 8}));
  EXPECT_THAT(*ParseHostFile("\xef\xbb\xbf"
                             "c"),
              ElementsAre(HostSpec{"c", {}}));
  EXPECT_THAT(*ParseHostFile("a:3\r\nb\n"), ElementsAre(HostSpec{"a", 3}, HostSpec{"b", {}}));
  // $PBS_NODEFILE with two processors of each host.
  EXPECT_THAT(*ParseHostFile("a\na\nb\nb\n"), ElementsAre(HostSpec{"a", 2}, HostSpec{"b", 2}));
}

TEST(HostSpecTest, ParseHostFile_InvalidText_ErrorHasTheLineNumber) {
  EXPECT_EQ(ErrorOf(ParseHostFile("")), "it names no host");
  EXPECT_TRUE(absl::StrContains(ErrorOf(ParseHostFile("a\n\nb slots=many\n")), "line 3: number of workers: "));
  std::string many;
  for (int i = 0; i <= 100000; ++i) absl::StrAppend(&many, "h", i, "\n");
  EXPECT_TRUE(absl::StrContains(ErrorOf(ParseHostFile(many)), "it names 100001 hosts; the most is "));
}

}  // namespace
}  // namespace ddprun::launcher

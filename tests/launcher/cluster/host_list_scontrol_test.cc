// ExpandHostList agrees with `scontrol show hostnames`.
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "launcher/cluster/host_list.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

constexpr int kLists = 600;
constexpr int kListsPerCall = 20;
constexpr char kBetween[] = "between-two-lists";  // scontrol takes one list: this name separates several

class RandomLists {
 public:
  explicit RandomLists(unsigned seed) : random_(seed) {}

  std::string Next() {
    std::vector<std::string> names;
    for (int count = Number(1, 4); count > 0; --count) names.push_back(Name());
    return absl::StrJoin(names, ",");
  }

 private:
  int Number(int min, int max) { return std::uniform_int_distribution<int>(min, max)(random_); }

  std::string Text() {
    static constexpr absl::string_view kTexts[] = {"n", "node", "gpu-", "rack", "r1n", "a.b", "x_", "c1-", "N", "0"};
    return std::string(kTexts[Number(0, std::size(kTexts) - 1)]);
  }

  std::string Digits(int number) {
    std::string digits = absl::StrCat(number);
    const size_t width = Number(0, 3) == 0 ? Number(1, 5) : 1;
    return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
  }

  std::string Range() {
    const int first = Number(0, 1) == 0 ? Number(0, 12) : Number(90, 1002);
    if (Number(0, 1) == 0) return Digits(first);
    return absl::StrCat(Digits(first), "-", first + Number(0, 12));
  }

  std::string Name() {
    std::string name = Text();
    if (Number(0, 3) == 0) return absl::StrCat(name, Digits(Number(0, 120)));
    for (int brackets = Number(0, 3) == 0 ? 2 : 1; brackets > 0; --brackets) {
      std::vector<std::string> ranges;
      for (int count = Number(1, 4); count > 0; --count) ranges.push_back(Range());
      absl::StrAppend(&name, "[", absl::StrJoin(ranges, ","), "]", brackets > 1 ? Text() : "");
    }
    return name;
  }

  std::mt19937 random_;
};

std::string FindScontrol() {
  const std::vector<std::string> folders = absl::StrSplit("/usr/bin:/usr/local/bin:/opt/slurm/bin", ':');
  for (const std::string& folder : folders) {
    if (std::ifstream(folder + "/scontrol").good()) return folder + "/scontrol";
  }
  return "";
}

TEST(ExpandHostList, RandomLists_AreExpandedAsByScontrol) {
  const std::string scontrol = FindScontrol();
  if (scontrol.empty()) GTEST_SKIP() << "there is no scontrol on this machine";
  // scontrol needs a configuration, but contacts no daemon for this.
  const testing::TempDir folder;
  std::ofstream(folder.File("slurm.conf"))
      << "ClusterName=test\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n";

  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << std::endl;
  RandomLists random(seed);
  for (int call = 0; call < kLists / kListsPerCall; ++call) {
    std::vector<std::string> lists, expected;
    for (int i = 0; i < kListsPerCall; ++i) {
      lists.push_back(random.Next());
      const auto hosts = ExpandHostList(lists.back());
      ASSERT_TRUE(hosts.ok()) << lists.back() << ": " << hosts.status();
      expected.push_back(absl::StrJoin(*hosts, "\n"));
    }
    testing::Process process({scontrol, "show", "hostnames", absl::StrJoin(lists, absl::StrCat(",", kBetween, ","))},
                             {{"SLURM_CONF", folder.File("slurm.conf")}});
    ASSERT_EQ(process.Wait(), 0) << process.Err();
    const std::string out = process.Out();
    const std::vector<std::string> parts =
        absl::StrSplit(absl::StripSuffix(out, "\n"), absl::StrCat("\n", kBetween, "\n"));
    ASSERT_EQ(parts.size(), lists.size()) << absl::StrJoin(lists, "\n");
    for (size_t i = 0; i < lists.size(); ++i) EXPECT_EQ(parts[i], expected[i]) << lists[i];
  }
}

}  // namespace
}  // namespace ddprun::launcher

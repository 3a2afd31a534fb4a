#include "launcher/cluster/host_list.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::launcher {
namespace {

TEST(ExpandHostList, EveryForm_IsExpanded) {
  const std::pair<const char*, const char*> kCases[] = {
      {"node1", "node1"},
      {"node1,node2", "node1 node2"},
      {"node[1-3,07],gpu[01-10]",
       "node1 node2 node3 node07 gpu01 gpu02 gpu03 gpu04 gpu05 gpu06 gpu07 gpu08 gpu09 gpu10"},
      {"a[1-2]b[3-4]", "a1b3 a1b4 a2b3 a2b4"},
      {"n[1-2][3-4]", "n13 n14 n23 n24"},
      {"a[1]b[2]c[3-4]", "a1b2c3 a1b2c4"},
      {"n[1-2]-[3-4]", "n1-3 n1-4 n2-3 n2-4"},
      {"node[3,1-2]", "node3 node1 node2"},
      {"n[1,1],n1", "n1 n1 n1"},
      {"n[1-3],n[2-4]", "n1 n2 n3 n2 n3 n4"},
      {"n[08-10]", "n08 n09 n10"},
      {"n[099-101]", "n099 n100 n101"},
      {"n[9-11]", "n9 n10 n11"},
      {"n[8-010]", "n8 n9 n10"},
      {"n[000]", "n000"},
      {"n[05,5]", "n05 n5"},
      {"[1-3]", "1 2 3"},
      {"r[0-1]n[08-10]-ib", "r0n08-ib r0n09-ib r0n10-ib r1n08-ib r1n09-ib r1n10-ib"},
      {"gpu-[1-2].cluster.org,login.cluster.org", "gpu-1.cluster.org gpu-2.cluster.org login.cluster.org"},
      {"c1-[2,4,8,13]", "c1-2 c1-4 c1-8 c1-13"},
      {"n[123456789012345678]", "n123456789012345678"},
  };
  for (const auto& [list, expected] : kCases) {
    const auto hosts = ExpandHostList(list);
    ASSERT_TRUE(hosts.ok()) << list << ": " << hosts.status();
    EXPECT_EQ(absl::StrJoin(*hosts, " "), expected) << list;
  }
}

TEST(ExpandHostList, Malformed_ErrorHasThePosition) {
  const struct {
    const char* what;
    std::map<std::string, int> lists;  // each with the position of the error
  } kCases[] = {
      {"missing name", {{"", 1}, {",a", 1}, {"a,,b", 3}, {"a,", 3}}},
      {"missing number", {{"n[", 3}, {"n[]", 3}, {"n[-3]", 3}, {"n[a]", 3}, {"n[[1]]", 3}}},
      {"missing number", {{"n[1-", 5}, {"n[1-]", 5}, {"n[1,]", 5}, {"n[1--3]", 5}}},
      {"missing ']'", {{"n[1", 4}, {"n[1-2", 6}}},
      {"expected ',', '-' or ']'", {{"n[1a]", 4}, {"n[1-2-3]", 6}, {"n[1 ,2]", 4}}},
      {"unmatched ']'", {{"n]", 2}, {"n[1]]", 5}}},
      {"range with its end before its start", {{"n[3-1]", 6}}},
      {"invalid character", {{"a b", 2}, {"a\n", 2}}},
      {"number too long", {{"n[1234567890123456789]", 22}}},
      {"name too long", {{std::string(300, 'x'), 301}}},
  };
  for (const auto& [what, lists] : kCases) {
    for (const auto& [list, position] : lists) {
      const absl::Status status = ExpandHostList(list).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << list;
      EXPECT_TRUE(absl::StrContains(status.message(), what)) << list << ": " << status;
      EXPECT_TRUE(absl::EndsWith(status.message(), absl::StrCat(" at position ", position))) << list << ": " << status;
    }
  }
}

// Expanding any of these would exhaust memory or take too long.
TEST(ExpandHostList, TooManyHosts_IsAnErrorBeforeExpansion) {
  for (const char* list : {"n[1-100001]", "n[0-999999999999999999]", "n[1-1000]m[1-101]", "n[1-50000],m[1-50001]",
                           "n[1-50000,1-50001]", "a[1-99999]b[1-99999]c[1-99999]d[1-99999]e[1-99999]f[1-99999]"}) {
    EXPECT_EQ(ExpandHostList(list).status(), absl::InvalidArgumentError("the host list has more than 100000 hosts"))
        << list;
  }
  EXPECT_EQ(ExpandHostList("n[1-1000]m[1-100]")->size(), 100'000u);
}

}  // namespace
}  // namespace ddprun::launcher

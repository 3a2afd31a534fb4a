#include "launcher/config/visible_devices.h"

#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::launcher {
namespace {

Found<std::string> List(const std::string& value) { return {value, absl::StrCat("CUDA_VISIBLE_DEVICES=", value)}; }

// "a|b" of the devices, or the error.
std::string Parsed(const std::string& value) {
  const auto devices = ParseVisibleDevices(List(value));
  return devices.ok() ? absl::StrJoin(*devices, "|") : std::string(devices.status().message());
}

TEST(ParseVisibleDevices, EveryForm_IsParsed) {
  const std::pair<const char*, const char*> kCases[] = {
      {"0", "0"},   {"2,0", "2|0"},  {" 1 , 3 ", "1|3"}, {"GPU-8932f937-d72c,MIG-a", "GPU-8932f937-d72c|MIG-a"},
      {"", ""},     {"-1", ""},      {"NoDevFiles", ""}, {"none", ""},
      {"void", ""}, {"0,-1,1", "0"}, {"0,,1", "0"}};
  for (const auto& [list, devices] : kCases) EXPECT_EQ(Parsed(list), devices) << list;
  for (const char* list : {"all", "0;1", "0-3", "cuda:0", "0,all", "gpu-0"}) {
    EXPECT_EQ(Parsed(list), absl::StrCat("CUDA_VISIBLE_DEVICES=", list,
                                         " is not a list of GPUs, such as 0,1: correct it, or unset the variable for "
                                         "all GPUs"));
  }
}

TEST(FindVisibleDevices, HipVariable_TakesPrecedenceUnlessEmpty) {
  std::map<std::string, std::string> variables;
  const auto found = [&] {
    const auto list = FindVisibleDevices([&](const std::string& name) {
      return variables.contains(name) ? std::make_optional(variables[name]) : std::nullopt;
    });
    return list ? absl::StrCat(list->source, " is ", list->value) : "";
  };
  EXPECT_EQ(found(), "");
  variables["CUDA_VISIBLE_DEVICES"] = "0\r";
  EXPECT_EQ(found(), "CUDA_VISIBLE_DEVICES=0\\r is 0");
  variables["HIP_VISIBLE_DEVICES"] = "";
  EXPECT_EQ(found(), "CUDA_VISIBLE_DEVICES=0\\r is 0");
  variables["HIP_VISIBLE_DEVICES"] = "'2,3'";
  EXPECT_EQ(found(), "HIP_VISIBLE_DEVICES='2,3' is 2,3");
}

TEST(CountGpus, HiddenGpus_TextHasTheVariable) {
  const auto visible = [](const char* list) { return std::make_optional(List(list)); };
  const struct {
    GpuFacts facts;
    int visible;
    const char* text;
  } kCases[] = {
      {{}, 0, "this node has no GPU (none of /dev/nvidia0, /dev/kfd and /dev/dxg)"},
      {{.visible = visible("GPU-1")},
       0,
       "this node has no GPU (none of /dev/nvidia0, /dev/kfd and /dev/dxg), and CUDA_VISIBLE_DEVICES=GPU-1 names none "
       "of them"},
      {{.other = "/dev/dxg (WSL2)"}, 0, "this node has /dev/dxg (WSL2), whose GPUs are not counted"},
      {{.nvidia = 4}, 4, "this node has 4 NVIDIA GPUs"},
      {{.nvidia = 4, .visible = visible("2,GPU-7")}, 2, "this node has 4 NVIDIA GPUs"},
      {{.nvidia = 1, .visible = visible("NoDevFiles")},
       0,
       "this node has 1 NVIDIA GPU, but CUDA_VISIBLE_DEVICES=NoDevFiles hides all"},
      {{.nvidia = 4, .visible = visible("4")},
       0,
       "this node has 4 NVIDIA GPUs, but CUDA_VISIBLE_DEVICES=4 names none of them"},
      {{.nvidia = 4, .visible = visible("0,4,1")},
       1,
       "this node has 4 NVIDIA GPUs, and CUDA_VISIBLE_DEVICES=0,4,1 names others from 4 on"},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<GpuCount> count = CountGpus(c.facts);
    ASSERT_TRUE(count.ok()) << count.status();
    EXPECT_EQ(count->visible, c.visible) << c.text;
    EXPECT_EQ(count->text, c.text);
  }
  EXPECT_FALSE(CountGpus({.visible = visible("all")}).ok());
}

}  // namespace
}  // namespace ddprun::launcher

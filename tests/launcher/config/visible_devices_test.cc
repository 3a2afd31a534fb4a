#include "launcher/config/visible_devices.h"

#include <gmock/gmock.h>

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
                                         " is not a list of devices, such as 0,1: correct it, or unset the variable "
                                         "for all devices"));
  }
}

TEST(ParseVisibleDevices, OtherVendors_HaveTheirForms) {
  const auto parsed = [](const char* source, const char* list) {
    const auto devices = ParseVisibleDevices({list, source});
    return devices.ok() ? absl::StrJoin(*devices, "|") : "error";
  };
  EXPECT_EQ(parsed("ZE_AFFINITY_MASK=", "0.1,2"), "0.1|2");
  EXPECT_EQ(parsed("CUDA_VISIBLE_DEVICES=", "0.1,2"), "error");
  EXPECT_EQ(parsed("ASCEND_RT_VISIBLE_DEVICES=", "1, 2,3"), "1");
}

// Chosen devices of a node with these numbers of NVIDIA and AMD GPUs.
ChosenDevices Chosen(size_t nvidia, size_t amd, const std::map<std::string, std::string>& lists) {
  DeviceFacts facts{.lists = lists};
  for (size_t i = 0; i < nvidia; ++i) facts.devices[kNvidia].push_back({.index = static_cast<int>(i)});
  for (size_t i = 0; i < amd; ++i) facts.devices[kAmd].push_back({.index = static_cast<int>(i)});
  const absl::StatusOr<ChosenDevices> chosen = ChooseDevices(facts, "", false);
  EXPECT_TRUE(chosen.ok()) << chosen.status();
  return chosen.value_or(ChosenDevices());
}

TEST(ChooseDevices, HiddenGpus_TextHasTheVariable) {
  const struct {
    size_t nvidia;
    const char* list;
    size_t visible;
    const char* text;
  } kCases[] = {
      {4, "2,GPU-7", 2, "this node has 4 NVIDIA GPUs"},
      {1, "NoDevFiles", 0, "this node has 1 NVIDIA GPU, but CUDA_VISIBLE_DEVICES=NoDevFiles hides all"},
      {4, "4", 0, "this node has 4 NVIDIA GPUs, but CUDA_VISIBLE_DEVICES=4 names none of them"},
      {4, "0,4,1", 1, "this node has 4 NVIDIA GPUs"},
  };
  for (const auto& c : kCases) {
    const ChosenDevices chosen = Chosen(c.nvidia, 0, {{"CUDA_VISIBLE_DEVICES", c.list}});
    EXPECT_EQ(chosen.visible.size(), c.visible) << c.text;
    EXPECT_EQ(chosen.text, c.text);
  }
  EXPECT_FALSE(ChooseDevices({.lists = {{"CUDA_VISIBLE_DEVICES", "all"}}}, "", false).ok());
}

// Both with GPUs of AMD and where none are found, as in torchrun.
TEST(ChooseDevices, HipVariable_TakesPrecedenceUnlessEmpty) {
  for (const size_t amd : {0, 8}) {
    const auto source = [&](const std::map<std::string, std::string>& lists) {
      const ChosenDevices chosen = Chosen(0, amd, lists);
      return absl::StrCat(chosen.source, " ", absl::StrJoin(chosen.variables, ","));
    };
    EXPECT_THAT(source({}), ::testing::EndsWith(" CUDA_VISIBLE_DEVICES"));
    EXPECT_EQ(source({{"CUDA_VISIBLE_DEVICES", "0\r"}}), "CUDA_VISIBLE_DEVICES=0\\r CUDA_VISIBLE_DEVICES");
    EXPECT_EQ(source({{"CUDA_VISIBLE_DEVICES", "0"}, {"HIP_VISIBLE_DEVICES", ""}}),
              "CUDA_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICES");
    EXPECT_EQ(source({{"CUDA_VISIBLE_DEVICES", "0"}, {"HIP_VISIBLE_DEVICES", "'2,3'"}}),
              "HIP_VISIBLE_DEVICES='2,3' CUDA_VISIBLE_DEVICES,HIP_VISIBLE_DEVICES");
  }
}

}  // namespace
}  // namespace ddprun::launcher

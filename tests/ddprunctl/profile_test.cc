#include "ddprunctl/profile.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/testing/text_proto.h"

namespace ddprun::ctl {
namespace {

using ::testing::ElementsAre;

class ProfileTest : public ::testing::Test {
 protected:
  void Add(int64_t millis, const std::string& ranks) {
    profile_.Add(absl::Milliseconds(millis), TextProto<v1::InspectResponse>(ranks));
  }
  // "PID TID NAME BEGIN+DURATION" in milliseconds, "PID TID =NAME" for names of processes and tracks; sorted.
  std::vector<std::string> Events(int64_t end_millis) const {
    std::vector<std::string> lines;
    const auto trace = nlohmann::json::parse(profile_.TraceText(absl::Milliseconds(end_millis)));
    for (const auto& event : trace["traceEvents"]) {
      std::string line = absl::StrCat(event["pid"].get<int>(), " ", event["tid"].get<int>(), " ");
      if (event["ph"] == "M") {
        absl::StrAppend(&line, "=", event["args"]["name"].get<std::string>());
      } else {
        absl::StrAppend(&line, event["name"].get<std::string>(), " ", event["ts"].get<int64_t>() / 1000, "+",
                        event["dur"].get<int64_t>() / 1000);
      }
      lines.push_back(line);
    }
    std::sort(lines.begin(), lines.end());
    return lines;
  }

  Profile profile_;
};

TEST_F(ProfileTest, Samples_WithTheSameCalls_AreOneCall) {
  const std::string in_load =
      "main thread (most recent call first):\\n  File \\\"/a/b.py\\\", line 3 in load\\n"
      "  File \\\"/a/b.py\\\", line 9 in <module>\\n";
  const std::string in_module =
      "main thread (most recent call first):\\n  File \\\"/a/b.py\\\", line 10 in <module>\\n";
  Add(100, absl::StrCat("ranks { rank: 3 host: 'h' pid: 7 text: \"", in_load, "\" }"));
  Add(200, absl::StrCat("ranks { rank: 3 host: 'h' pid: 7 text: \"", in_load, "\" }"));
  Add(300, absl::StrCat("ranks { rank: 3 host: 'h' pid: 7 text: \"", in_module, "\" }"));
  EXPECT_THAT(Events(400), ElementsAre("3 0 =rank 3 (h, pid 7)", "3 1 <module> (b.py) 100+300", "3 1 =main thread",
                                       "3 1 load (b.py) 100+200"));
}

TEST_F(ProfileTest, ThreadThatEnds_ItsCallsEndWithTheNextSample) {
  Add(0, R"(ranks { host: "h" text: "thread (most recent call first):\n  File \"t\", line 1 in f\n" })");
  Add(100, R"(ranks { host: "h" })");
  Add(200, R"(ranks { host: "h" text: "thread (most recent call first):\n  File \"t\", line 1 in f\n" })");
  EXPECT_THAT(Events(250), ElementsAre("0 0 =rank 0 (h, pid 0)", "0 1 =thread", "0 1 f (t) 0+100", "0 1 f (t) 200+50"));
}

TEST_F(ProfileTest, Names_EqualTitlesAndNativeFrames_AreDistinct) {
  Add(0, R"(ranks { host: "h"
             text: "thread (most recent call first):\n  File \"t\", line 1 in f\nthread (most recent call first):\n  odd\nits state\n  x\n"
             native: "main thread, native (most recent call first):\n  #0 0x7f poll (libc.so.6+0x1b)\n  #1 (a.so+0x2)\n" })");
  EXPECT_THAT(Events(10), ElementsAre("0 0 =rank 0 (h, pid 0)", "0 1 (a.so+0x2) 0+10", "0 1 =main thread, native",
                                      "0 1 poll (libc.so.6) 0+10", "0 2 =thread", "0 2 f (t) 0+10", "0 3 =thread 2",
                                      "0 3 odd 0+10"));
}

TEST_F(ProfileTest, NoSample_EmptyTrace) { EXPECT_EQ(profile_.TraceText(absl::Seconds(1)), R"({"traceEvents":[]})"); }

}  // namespace
}  // namespace ddprun::ctl

#include "base/command_line.h"

#include <string>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

class CommandLineTest : public testing::Test {
 protected:
  CommandLineTest() {
    app_.add_option("--port", port_);
    app_.add_option("word", word_);
    app_.set_version_flag("--version", "program 1.2");
  }
  CLI::App app_{"Does something.", "program"};
  int port_ = 0;
  std::string word_;
};

TEST_F(CommandLineTest, ParseWords_InTheirOrder) {
  EXPECT_EQ(*ParseWords(app_, {"--port", "1", "a"}), "");
  EXPECT_EQ(port_, 1);
  EXPECT_EQ(word_, "a");
}

TEST_F(CommandLineTest, ParseWords_HelpAndVersion_AreAnswered) {
  const std::string help = *ParseWords(app_, {"--help"});
  EXPECT_NE(help.find("Does something."), std::string::npos) << help;
  EXPECT_EQ(*ParseWords(app_, {"--version"}), "program 1.2\n");
}

TEST_F(CommandLineTest, ParseWords_Refused_SaysWhyOnOneLine) {
  const absl::Status plain = ParseWords(app_, {"--port=a\nb"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(plain));
  EXPECT_EQ(plain.message(), "Could not convert: --port = a\\nb");
  const absl::Status own = ParseWords(app_, {"--port"}, [](const CLI::Error& error) {
                             return error.get_name() + ", see program --help";
                           }).status();
  EXPECT_EQ(own.message(), "ArgumentMismatch, see program --help");
}

TEST_F(CommandLineTest, CatchCliErrors_CallsOnce) {
  int calls = 0;
  EXPECT_TRUE(CatchCliErrors([&] { ++calls; }).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(CatchCliErrors([] { throw CLI::ValidationError("--a", "is odd"); }).message(), "--a: is odd");
}

}  // namespace
}  // namespace ddprun

#include "launcher/process/resolve_program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

class ResolveProgramTest : public ::testing::Test {
 protected:
  std::string Make(const std::string& name, mode_t mode) {
    const std::string path = dir_.File(name);
    std::ofstream(path) << "#!/bin/sh\n";
    chmod(path.c_str(), mode);
    return path;
  }
  std::string MakeFolder(const std::string& name) {
    mkdir(dir_.File(name).c_str(), 0755);
    return dir_.File(name);
  }

  const testing::TempDir dir_;
};

TEST_F(ResolveProgramTest, Name_InSeveralFolders_FirstOfPathIsUsed) {
  const std::string a = MakeFolder("a"), b = MakeFolder("b"), path = "/no/such:" + a + ":" + b;
  Make("b/tool", 0755);
  EXPECT_EQ(*ResolveProgram("tool", path), b + "/tool");
  Make("a/tool", 0644);
  EXPECT_EQ(*ResolveProgram("tool", path), b + "/tool") << "one that may not be run is passed over";
  Make("a/tool", 0755);
  EXPECT_EQ(*ResolveProgram("tool", path), a + "/tool");
}

TEST_F(ResolveProgramTest, Name_NotExecutableOrMissing_IsAnError) {
  const std::string a = MakeFolder("a");
  Make("a/tool", 0644);
  const absl::Status status = ResolveProgram("tool", a + ":/usr/bin").status();
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_EQ(ExitCodeOfStartError(status), 126);
  EXPECT_THAT(status.message(), HasSubstr(a + "/tool"));
  const absl::Status missing = ResolveProgram("no-such-tool", "/usr/bin:/bin").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(missing.message(), HasSubstr("no such program in PATH"));
}

TEST_F(ResolveProgramTest, Name_InWorkingDirectoryOnly_ErrorSuggestsThePath) {
  Make("train.sh", 0755);
  char before[4096];
  ASSERT_NE(getcwd(before, sizeof(before)), nullptr);
  ASSERT_EQ(chdir(dir_.path().c_str()), 0);
  const auto missing = ResolveProgram("train.sh", "/usr/bin");
  const auto found = ResolveProgram("train.sh", "/usr/bin:");
  ASSERT_EQ(chdir(before), 0);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("write ./train.sh"));
  EXPECT_EQ(*found, "./train.sh");
}

TEST_F(ResolveProgramTest, PathWithSlash_IsNotSearched) {
  const std::string tool = Make("tool", 0755);
  EXPECT_EQ(*ResolveProgram(tool, ""), tool);
  EXPECT_TRUE(absl::IsNotFound(ResolveProgram("./no-such-tool", dir_.path()).status()));
}

TEST_F(ResolveProgramTest, NotAFile_IsAnError) {
  const absl::Status folder = ResolveProgram(MakeFolder("folder"), "").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(folder));
  EXPECT_THAT(std::string(folder.message()), HasSubstr("it is a directory"));
  EXPECT_TRUE(absl::IsFailedPrecondition(ResolveProgram("/dev/null", "").status()));
  EXPECT_TRUE(absl::IsNotFound(ResolveProgram(Make("tool", 0755) + "/x", "").status())) << "a file used as folder";
  EXPECT_TRUE(absl::IsInvalidArgument(ResolveProgram("", "/bin").status()));
}

TEST_F(ResolveProgramTest, InspectScript_ReportsHeadAndPermission) {
  const ScriptFile program = InspectScript("/bin/true");
  EXPECT_EQ(program.head.substr(0, 4), "\177ELF");
  EXPECT_TRUE(program.executable);
  const ScriptFile script = InspectScript(Make("script", 0644));
  EXPECT_EQ(script.head, "#!/bin/sh\n");
  EXPECT_FALSE(script.executable);
  EXPECT_TRUE(InspectScript(Make("tool", 0755)).executable);
}

TEST_F(ResolveProgramTest, InspectScript_NotAFile_IsNotRead) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "print(1)", 8), 8);
  for (const std::string& name : {std::string("no-such"), dir_.path(), "/dev/fd/" + std::to_string(ends[0])}) {
    EXPECT_EQ(InspectScript(name).head, "") << name;
    EXPECT_FALSE(InspectScript(name).executable);
  }
  char text[9] = {};
  EXPECT_EQ(read(ends[0], text, 8), 8);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(ResolveProgramTest, ExplainExecError_NoResources_IsResourceExhausted) {
  for (const int error : {EAGAIN, ENOMEM, EMFILE, ENFILE}) {
    EXPECT_TRUE(absl::IsResourceExhausted(ExplainExecError("/bin/true", error))) << error;
  }
}

TEST_F(ResolveProgramTest, ExplainExecError_MissingLoader_IsNamed) {
  // A copy of a real program with a changed loader name.
  std::ifstream source("/bin/true", std::ios::binary);
  std::string program((std::istreambuf_iterator<char>(source)), std::istreambuf_iterator<char>());
  const size_t loader = program.find("/lib");
  ASSERT_NE(loader, std::string::npos);
  program.replace(loader, 4, "/bil");
  std::ofstream(dir_.File("program"), std::ios::binary) << program;
  chmod(dir_.File("program").c_str(), 0755);
  const absl::Status status = ExplainExecError(dir_.File("program"), ENOENT);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the dynamic loader '/bil"));
}

}  // namespace
}  // namespace ddprun::launcher

#include "launcher/process/python_environment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/process.h"

namespace ddprun::launcher {
namespace {

class PythonEnvironmentTest : public ::testing::Test {
 protected:
  std::string At(const std::string& name) const { return dir_.File(name); }
  void MakeFolder(const std::string& name) const { std::filesystem::create_directories(At(name)); }
  std::string Make(const std::string& name, const std::string& text = "#!/bin/sh\n") const {
    MakeFolder(name.substr(0, name.rfind('/')));
    std::ofstream(At(name)) << text;
    chmod(At(name).c_str(), 0755);
    return At(name);
  }
  // Creates a virtual environment that contains a ddprun.
  void MakeVenv(const std::string& name, const std::string& config = "") const {
    Make(name + "/bin/python");
    Make(name + "/bin/ddprun");
    Make(name + "/pyvenv.cfg", config);
  }

  const testing::TempDir dir_;
};

TEST_F(PythonEnvironmentTest, PythonBeside_CommandOfAVirtualEnvironment) {
  MakeVenv("venv");
  const std::string python = At("venv/bin/python"), command = At("venv/bin/ddprun");
  EXPECT_EQ(PythonBeside(command, ""), python);
  EXPECT_EQ(PythonBeside("ddprun", absl::StrCat("/no/such:", At("venv/bin"))), python);
  for (const auto& [folder, relative] : {std::pair("venv", "bin/ddprun"), std::pair("venv/bin", "./ddprun")}) {
    ASSERT_EQ(chdir(At(folder).c_str()), 0);
    EXPECT_EQ(PythonBeside(relative, ""), python);
  }
  ASSERT_EQ(chdir("/"), 0);
  // A symbolic link counts where it lies.
  unlink(command.c_str());
  const std::string elsewhere = Make("opt/bin/ddprun");
  ASSERT_EQ(symlink(elsewhere.c_str(), command.c_str()), 0);
  EXPECT_EQ(PythonBeside(command, ""), python);
  EXPECT_EQ(PythonBeside(elsewhere, ""), "");
}

TEST_F(PythonEnvironmentTest, PythonBeside_CondaEnvironment) {
  Make("conda/bin/python");
  Make("conda/bin/ddprun");
  EXPECT_EQ(PythonBeside(At("conda/bin/ddprun"), ""), "") << "a folder like any other";
  MakeFolder("conda/conda-meta");
  EXPECT_EQ(PythonBeside(At("conda/bin/ddprun"), ""), At("conda/bin/python"));
  unlink(At("conda/bin/python").c_str());
  EXPECT_EQ(PythonBeside(At("conda/bin/ddprun"), ""), "");
  EXPECT_EQ(PythonBeside("", ""), "");
}

TEST_F(PythonEnvironmentTest, HasPackage_VirtualEnvironment_SeesItsBaseIfConfigured) {
  const std::string base = Make("base/bin/python3");
  MakeFolder("base/lib/python3.11/site-packages/torch");
  MakeVenv("alone", absl::StrCat("home = ", At("base/bin"), "\ninclude-system-site-packages = false\n"));
  MakeVenv("sees", absl::StrCat("home = ", At("base/bin"), "\ninclude-system-site-packages = True\n"));
  const std::string home = At("home");
  EXPECT_EQ(HasPackage(base, "torch", home), true);
  EXPECT_EQ(HasPackage(base, "numpy", home), false);
  EXPECT_EQ(HasPackage(At("alone/bin/python"), "torch", home), false);
  EXPECT_EQ(HasPackage(At("sees/bin/python"), "torch", home), true);
  MakeFolder("alone/lib64/python3.12/site-packages/torch");
  EXPECT_EQ(HasPackage(At("alone/bin/python"), "torch", home), true);
}

TEST_F(PythonEnvironmentTest, HasPackage_System_IncludesUserAndDebianFolders) {
  const std::string python = Make("usr/bin/python3.11");
  MakeFolder("bin");
  ASSERT_EQ(symlink(python.c_str(), At("bin/python3").c_str()), 0);
  EXPECT_EQ(HasPackage(At("bin/python3"), "torch", At("home")), std::nullopt) << "as a wrapper";
  MakeFolder("usr/lib/python3.11");
  EXPECT_EQ(HasPackage(At("bin/python3"), "torch", At("home")), false);
  MakeFolder("usr/lib/python3/dist-packages/torch");
  EXPECT_EQ(HasPackage(At("bin/python3"), "torch", At("home")), true);
  MakeFolder("home/.local/lib/python3.11/site-packages/numpy");
  EXPECT_EQ(HasPackage(At("bin/python3"), "numpy", At("home")), true);
}

}  // namespace
}  // namespace ddprun::launcher

// Uses the installed files as a user does: with CMake, pkg-config and the system's compiler, outside this tree.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/testing/process.h"

namespace ddprun::testing {
namespace {

namespace fs = std::filesystem;
using Environment = std::map<std::string, std::string>;

struct End {
  int code = -1;
  std::string out, err;
};

// Runs a shell line in the folder `in`. Compilers may need more than Process::kPatience on a busy machine.
End Shell(const std::string& line, const std::string& in = ".", Environment environment = {}) {
  // A user's shell: without Bazel's compiler variables and without a launcher's.
  for (const char* name : {"CC", "CXX", "RANK", "WORLD_SIZE"}) environment.insert({name, ""});
  Process process({"/bin/sh", "-c", absl::StrCat("cd '", in, "' && ", line)}, environment);
  End end;
  for (int i = 0; i < 6 && end.code == -1; ++i) end.code = process.Wait();
  end.out = process.Out();
  end.err = process.Err();
  return end;
}

// Fails the test if the command has failed.
End Well(End end) {
  EXPECT_EQ(end.code, 0) << end.out << end.err;
  return end;
}

// Joins lines: CMake wraps its messages.
std::string OneLine(const std::string& text) {
  return absl::StrJoin(absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
}

std::string Quoted(const std::string& path) { return absl::StrCat("'", path, "'"); }

End Install(const std::string& arguments, Environment environment = {}) {
  return Shell("packaging/install " + arguments, ".", std::move(environment));
}

// Names of all files below `folder`, sorted.
std::set<std::string> Files(const std::string& folder) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) files.insert(entry.path().lexically_relative(folder));  // a temporary file may be gone
  }
  return files;
}

ino_t Inode(const std::string& path) {
  struct stat file = {};
  return stat(path.c_str(), &file) == 0 ? file.st_ino : 0;
}

std::vector<double> Losses(const std::string& out) {
  std::vector<double> losses;
  for (absl::string_view line : absl::StrSplit(out, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() >= 4 && words[0] == "epoch" && words[2] == "loss") losses.push_back(std::stod(words[3]));
  }
  return losses;
}

// Lines that begin with `word`, by their first two words. Repeated lines must be identical.
std::map<std::string, std::string> Lines(const std::string& out, const std::string& word) {
  std::map<std::string, std::string> lines;
  for (absl::string_view line : absl::StrSplit(out, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    if (words.size() < 3 || words[0] != word) continue;
    const auto [before, is_new] = lines.emplace(absl::StrCat(words[0], " ", words[1]), words[2]);
    EXPECT_TRUE(is_new || before->second == words[2]) << line;
  }
  return lines;
}

// Returns a child of `parent` that runs `program`; 0 if there is none.
pid_t ChildThatRuns(const std::string& program, pid_t parent) {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    // "PID (NAME) STATE PARENT ..."
    const std::string stat = ReadFile(entry.path() / "stat");
    const size_t name = stat.find('('), end = stat.rfind(')');
    if (end == std::string::npos || stat.substr(name + 1, end - name - 1) != program) continue;
    if (std::stoi(stat.substr(end + 4)) == parent) return std::stoi(stat);
  }
  return 0;
}

// Installs once and moves the result, so that no file may depend on the original path.
class InstallTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const End end = Install("--prefix=" + dir_->File("first"));
    ASSERT_EQ(end.code, 0) << end.err;
    fs::rename(dir_->File("first"), Prefix());
  }
  static void TearDownTestSuite() { delete dir_; }

  static std::string Prefix() { return dir_->File("prefix"); }
  static std::string InDir(const std::string& name) { return dir_->File(name); }

  static End Configure(const std::string& build, const std::string& more,
                       const std::string& project = "examples/embed") {
    const std::string name = fs::path(project).filename();
    fs::copy(project, InDir(name), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    return Shell(
        absl::StrCat("cmake -G Ninja -S ", name, " -B ", build, " -DCMAKE_PREFIX_PATH=", Quoted(Prefix()), " ", more),
        dir_->path());
  }

  static std::string LibTorch() {
    const End torch =
        Well(Shell("pkg-config --variable=libtorch ddprun", ".", {{"PKG_CONFIG_PATH", Prefix() + "/lib/pkgconfig"}}));
    return std::string(absl::StripAsciiWhitespace(torch.out));
  }

 private:
  static TempDir* dir_;
};
TempDir* InstallTest::dir_ = nullptr;

TEST_F(InstallTest, List_AfterInstall_EqualsInstalledFiles) {
  std::set<std::string> listed;
  for (absl::string_view line : absl::StrSplit(ReadFile(Prefix() + "/share/ddprun/manifest.txt"), '\n')) {
    if (!line.empty()) listed.insert(std::string(line));
  }
  EXPECT_EQ(listed, Files(Prefix()));
  for (const char* name : {"bin/ddprun", "bin/rendezvousd", "include/ddprun_worker.h", "lib/libddprun_worker.a",
                           "lib/libddprun_c.so", "lib/ddprun_python/ddprun/in_place/bin/torchrun",
                           "lib/libddprun_crash.so", "lib/libddprun_ports.so", "share/licenses/ddprun/LICENSE",
                           "include/ddprun/worker_runtime/worker_runtime.h", "lib/cmake/ddprun/ddprunConfig.cmake"}) {
    EXPECT_EQ(listed.count(name), 1) << name;
  }
}

TEST_F(InstallTest, Programs_Run) { Well(Shell("bin/ddprun --version && bin/rendezvousd --version", Prefix())); }

TEST_F(InstallTest, Install_Again_RunningProgramIsNotTouched) {
  const std::string prefix = InDir("again");
  ASSERT_EQ(Install("--prefix=" + prefix).code, 0);
  const std::set<std::string> files = Files(prefix);
  const ino_t before = Inode(prefix + "/bin/ddprun");
  Process running({prefix + "/bin/ddprun", "--standalone", "--no-python", "sh", "-c", "echo up; exec sleep 1000"});
  ASSERT_TRUE(running.WaitForOut("up")) << running.Err();
  Well(Install("--prefix " + prefix));
  EXPECT_NE(Inode(prefix + "/bin/ddprun"), before);
  EXPECT_TRUE(Alive(running.pid()));
  EXPECT_EQ(Files(prefix), files);
  running.Signal(SIGTERM);
  EXPECT_EQ(running.Wait(), 128 + SIGTERM);
}

TEST_F(InstallTest, Install_FileOfOlderVersion_IsRemoved) {
  const std::string prefix = InDir("older");
  ASSERT_EQ(Install("--prefix=" + prefix).code, 0);
  std::ofstream(prefix + "/lib/libold.a") << "old";
  std::ofstream(prefix + "/share/ddprun/manifest.txt", std::ios::app) << "lib/libold.a\n../prefix/bin/ddprun\n";
  ASSERT_EQ(Install("--prefix=" + prefix).code, 0);
  EXPECT_FALSE(fs::exists(prefix + "/lib/libold.a"));
  EXPECT_TRUE(fs::exists(Prefix() + "/bin/ddprun")) << "names outside of the prefix are not followed";
}

TEST_F(InstallTest, Prefix_HomeAndSpaces_IsMadeAbsolute) {
  const End end = Well(Install("'--prefix=~/a b/./c'", {{"HOME", InDir("home")}}));
  EXPECT_TRUE(fs::exists(InDir("home/a b/c/bin/ddprun"))) << end.out;
  const End flags = Shell("pkg-config --cflags ddprun", ".", {{"PKG_CONFIG_PATH", InDir("home/a b/c/lib/pkgconfig")}});
  EXPECT_TRUE(absl::StrContains(flags.out, "a\\ b/c")) << flags.out << flags.err;
}

TEST_F(InstallTest, Destdir_WithPrefix_IsPrepended) {
  Well(Install("--prefix=/opt/ddprun", {{"DESTDIR", InDir("image")}}));
  EXPECT_TRUE(fs::exists(InDir("image/opt/ddprun/bin/ddprun")));
}

TEST_F(InstallTest, Prefix_NotWritable_OneLine) {
  std::ofstream(InDir("file")) << "no folder";
  const End end = Install("--prefix=" + InDir("file/x"));
  EXPECT_EQ(end.code, 1);
  EXPECT_TRUE(absl::StrContains(end.err, absl::StrCat("can't write to ", InDir("file/x"), " (Not a directory): ")));
  EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
  EXPECT_EQ(Install("").code, 2);
  EXPECT_EQ(Install("--prefixx=/x").code, 2);
}

TEST_F(InstallTest, Install_Interrupted_IsNotFoundByCMake) {
  const std::string prefix = InDir("half");
  ASSERT_EQ(Install("--prefix=" + prefix).code, 0);
  fs::remove(prefix + "/lib/libddprun_worker.a");
  fs::create_directories(prefix + "/lib/libddprun_worker.a/in the way");
  const End end = Install("--prefix=" + prefix);
  EXPECT_EQ(end.code, 1) << end.out;
  EXPECT_FALSE(fs::exists(prefix + "/lib/cmake/ddprun/ddprunConfig.cmake"));
  EXPECT_FALSE(fs::exists(prefix + "/lib/pkgconfig/ddprun.pc"));
  for (const std::string& name : Files(prefix)) EXPECT_FALSE(absl::EndsWith(name, "-new")) << name;
}

TEST_F(InstallTest, Uninstall_ForeignFiles_AreKept) {
  const std::string prefix = InDir("gone");
  ASSERT_EQ(Install("--prefix=" + prefix).code, 0);
  std::ofstream(prefix + "/bin/mine") << "mine";
  Well(Install("--uninstall --prefix=" + prefix));
  EXPECT_EQ(Files(prefix), std::set<std::string>{"bin/mine"});
  const End again = Install("--uninstall --prefix=" + prefix);
  EXPECT_EQ(again.code, 1);
  EXPECT_TRUE(absl::StrContains(again.err, "nothing was installed in " + prefix)) << again.err;
}

TEST_F(InstallTest, CMake_LibTorchMissingOrOther_ErrorSaysWhatToSet) {
  End end = Configure("wrong", "-DDDPRUN_LIBTORCH=/nonexistent");
  EXPECT_NE(end.code, 0);
  EXPECT_TRUE(absl::StrContains(OneLine(end.err),
                                "DDPRUN_LIBTORCH=/nonexistent has no lib/libtorch_cpu.so: set DDPRUN_LIBTORCH to"))
      << end.err;

  const std::string other = InDir("other_torch");
  for (const char* name : {"/lib/libtorch_cpu.so", "/lib/libc10.so", "/include/torch/headeronly/version.h"}) {
    fs::create_directories(fs::path(other + name).parent_path());
    std::ofstream(other + name) << "#define TORCH_VERSION \\\n  \"1.2.3\"\n";
  }
  end = Configure("wrong", "-DDDPRUN_LIBTORCH=" + other);
  EXPECT_NE(end.code, 0);
  EXPECT_TRUE(absl::StrContains(OneLine(end.err), "is version 1.2.3, but ddprun was built with 2.")) << end.err;
}

// scripts/torch_versions --cpp compiles all of it, which takes many minutes.
TEST_F(InstallTest, SourcePackage_Files_AreThoseOfTheLibrary) {
  Well(Shell(absl::StrCat(Quoted(SourceRoot() + "/scripts/install"),
                          " --source=source.tar.gz && mkdir ddprun && "
                          "tar -xzf source.tar.gz -C ddprun --strip-components=1"),
             InDir("")));
  std::ofstream(InDir("CMakeLists.txt")) << "cmake_minimum_required(VERSION 3.24)\n"
                                            "project(trainer CXX)\n"
                                            "add_subdirectory(ddprun)\n"
                                            "find_package(ddprun 0.1 REQUIRED)\n"
                                            "add_executable(trainer ddprun/base/text.cc)\n"
                                            "target_link_libraries(trainer ddprun::worker_runtime)\n";
  const auto configure = [](const std::string& more) {
    return Shell("rm -rf source && cmake -G Ninja -S . -B source " + more, InDir(""),
                 {{"DDPRUN_LIBTORCH", LibTorch()}});
  };
  Well(configure(""));
  const End sources = Well(Shell(
      "ninja -t query ddprun/lib/libddprun_worker.a | sed -n 's#.*/\\(.*\\)\\.cc\\.o$#\\1#p' | sort", InDir("source")));
  const End objects = Well(Shell("ar t lib/libddprun_worker.a | sed 's/\\(\\.pic\\)*\\.o$//' | sort", Prefix()));
  EXPECT_EQ(sources.out, objects.out);
  const End linked = Well(Shell("ninja -t query trainer", InDir("source")));
  EXPECT_TRUE(absl::StrContains(linked.out, "ddprun/lib/libddprun_worker.a\n")) << linked.out;
  Well(Shell("ninja ddprun/CMakeFiles/ddprun_worker.dir/worker_contract/error_file_json.cc.o", InDir("source")));

  const std::string old = InDir("old_torch");
  fs::create_directories(old + "/include/torch/headeronly");
  std::ofstream(old + "/include/torch/headeronly/version.h") << "  \"2.10.1\"\n";
  const std::vector<std::pair<std::string, std::string>> errors = {
      {"-DDDPRUN_LIBTORCH=/nonexistent", "ddprun needs LibTorch 2.11 or newer, and /nonexistent has none: set "},
      {"-DDDPRUN_LIBTORCH=" + old, "old_torch has 2.10.1: set DDPRUN_LIBTORCH to "},
      {"-DCMAKE_DISABLE_FIND_PACKAGE_absl=ON", "a library is missing (absl_DIR="},
      {"-DCMAKE_CXX_FLAGS=-D_GLIBCXX_USE_CXX11_ABI=0",
       "/lib/libc10.so: build for its architecture and with its C++ ABI"},
  };
  for (const auto& [setting, message] : errors) {
    const End end = configure(setting);
    EXPECT_NE(end.code, 0) << setting;
    EXPECT_TRUE(absl::StrContains(OneLine(end.err), message)) << end.err;
  }
}

TEST_F(InstallTest, PkgConfig_WholeLibrary_LinksWithoutCuda) {
  // Links all objects, to detect a missing library that only some of them need.
  const End built = Shell(absl::StrCat("g++ -O0 $(pkg-config --cflags ddprun) ",
                                       fs::absolute("tests/install/link_check/link_check.cc").string(),
                                       " -o linked -Wl,--whole-archive $(pkg-config --libs-only-L ddprun) "
                                       "-lddprun_worker -Wl,--no-whole-archive $(pkg-config --libs ddprun)"),
                          InDir(""), {{"PKG_CONFIG_PATH", Prefix() + "/lib/pkgconfig"}});
  ASSERT_EQ(built.code, 0) << built.err;
  const End ran = Well(Shell("./linked", InDir("")));
  EXPECT_TRUE(absl::StrContains(ran.out, "sum 2\n")) << ran.out;
  EXPECT_TRUE(absl::StrContains(ran.out, "loaded libtorch_cpu.so\n")) << ran.out;
  EXPECT_TRUE(absl::StrContains(ran.out, "no CUDA\n")) << ran.out;
  for (const char* library : {"libtorch_cuda", "libc10_cuda", "libcublas", "libcudnn", "libnccl"}) {
    EXPECT_FALSE(absl::StrContains(ran.out, library)) << ran.out;
  }
}

TEST_F(InstallTest, CProgram_SharedLibrary_LinksAndRuns) {
  const std::string source = fs::absolute("tests/worker_runtime/c_api/c_program.c");
  Well(Shell(absl::StrCat("gcc -std=c99 -Wall -Werror -I ", Quoted(Prefix() + "/include"), " ", Quoted(source),
                          " -o c_program -L ", Quoted(Prefix() + "/lib"), " -lddprun_c -Wl,-rpath,",
                          Quoted(Prefix() + "/lib")),
             InDir("")));
  const End ran = Well(Shell(absl::StrCat(Quoted(Prefix() + "/bin/ddprun"),
                                          " --standalone --nproc-per-node=2 --no-python ./c_program collectives"),
                             InDir("")));
  EXPECT_TRUE(absl::StrContains(ran.out, "rank 1 of 2 ready\n")) << ran.out;
}

TEST_F(InstallTest, CMakeComponent_Cuda_IsRegisteredAtStart) {
  // The default of some distributions' compilers.
  const End configured = Configure("cuda", "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--as-needed", "tests/install/link_check");
  if (absl::StrContains(configured.err, "is a LibTorch for CPUs")) GTEST_SKIP() << "LibTorch is one for CPUs";
  ASSERT_EQ(configured.code, 0) << configured.err;
  const End built = Shell("cmake --build cuda", InDir(""));
  ASSERT_EQ(built.code, 0) << built.out << built.err;
  const End ran = Well(Shell("cuda/link_check", InDir("")));
  EXPECT_TRUE(absl::StrContains(ran.out, "loaded libtorch_cuda.so\n")) << ran.out;
  EXPECT_FALSE(absl::StrContains(ran.out, "no CUDA\n")) << ran.out;
  EXPECT_TRUE(absl::StrContains(ran.out, "sum 2\n")) << ran.out;
}

TEST_F(InstallTest, CMakeComponent_Unknown_ErrorNamesIt) {
  // A copy of LibTorch without its CUDA libraries.
  const fs::path real(LibTorch()), cpu(InDir("cpu_torch"));
  fs::create_directories(cpu / "lib");
  fs::create_symlink(real / "include", cpu / "include");
  for (const char* name : {"lib/libtorch_cpu.so", "lib/libc10.so"}) fs::create_symlink(real / name, cpu / name);
  End end = Configure("none", "-DDDPRUN_LIBTORCH=" + Quoted(cpu), "tests/install/link_check");
  EXPECT_NE(end.code, 0);
  EXPECT_TRUE(absl::StrContains(OneLine(end.err),
                                "cpu_torch is a LibTorch for CPUs, without lib/libtorch_cuda.so: set "
                                "DDPRUN_LIBTORCH to a LibTorch 2."))
      << end.err;

  fs::create_directory(InDir("misspelt"));
  std::ofstream(InDir("misspelt/CMakeLists.txt")) << "cmake_minimum_required(VERSION 3.16)\n"
                                                     "project(misspelt CXX)\n"
                                                     "find_package(ddprun OPTIONAL_COMPONENTS cuda)\n"
                                                     "find_package(ddprun REQUIRED COMPONENTS cude)\n";
  end = Shell("cmake -G Ninja -S misspelt -B misspelt_build -DCMAKE_PREFIX_PATH=" + Quoted(Prefix()), InDir(""));
  EXPECT_NE(end.code, 0);
  EXPECT_TRUE(absl::StrContains(OneLine(end.err), "ddprun has no component \"cude\"; available: cuda")) << end.err;
}

TEST_F(InstallTest, Tutorial_FirstTrainer_Trains) {
  const End alone = Well(Shell("\"$PROGRAM\" 3", InDir(""),
                               {{"OMP_NUM_THREADS", "1"}, {"PROGRAM", fs::absolute("examples/embed/single")}}));
  EXPECT_EQ(Losses(alone.out).size(), 3) << alone.out;
}

TEST_F(InstallTest, CMakeProject_WorkerDies_TrainingContinues) {
  // Optimization would add half of the compile time.
  const End configured = Configure("build", "-DCMAKE_CXX_FLAGS_RELEASE=-O0");
  ASSERT_EQ(configured.code, 0) << configured.err;
  const End built = Shell("cmake --build build --target elastic", InDir(""));
  ASSERT_EQ(built.code, 0) << built.out << built.err;

  const std::string job = Quoted(Prefix() + "/bin/ddprun") +
                          " --standalone --nproc-per-node=2 --max-restarts=1 --no-python ../build/elastic ";
  fs::create_directory(InDir("whole"));
  const End trained = Well(Shell(job + "40", InDir("whole")));
  const std::vector<double> losses = Losses(trained.out);
  ASSERT_EQ(losses.size(), 40) << trained.out;
  EXPECT_LT(losses[4], 0.5 * losses[0]) << trained.out;

  const std::string folder = InDir("killed");
  fs::create_directory(folder);
  Process killed({"/bin/sh", "-c", absl::StrCat("cd ", Quoted(folder), " && LOGLEVEL=INFO exec ", job, "40")});
  const auto some_epochs_are_saved = [&] {
    if (!fs::exists(folder + "/checkpoints")) return false;
    const std::set<std::string> files = Files(folder + "/checkpoints");
    return files.upper_bound("step_00000100") != files.end();
  };
  ASSERT_TRUE(Eventually(some_epochs_are_saved)) << killed.Err();
  const pid_t worker = ChildThatRuns("elastic", killed.pid());
  ASSERT_NE(worker, 0) << killed.Err();
  kill(worker, SIGKILL);
  EXPECT_EQ(killed.Wait(), 0) << killed.Err();
  EXPECT_TRUE(absl::StrContains(killed.Err(), "SIGKILL")) << killed.Err();
  EXPECT_TRUE(absl::StrContains(killed.Err(), "keeping rank ")) << killed.Err();
  // Rank 0 is the one that prints; if it was killed, its last lines may be lost, and others print the rest.
  const std::vector<std::string> whole = absl::StrSplit(trained.out, '\n');
  const std::vector<std::string> seen = absl::StrSplit(killed.Out(), '\n');
  EXPECT_EQ(seen[seen.size() - 2], whole[whole.size() - 2]) << killed.Out();
  for (const std::string& line : seen) EXPECT_NE(std::find(whole.begin(), whole.end(), line), whole.end()) << line;
}

TEST_F(InstallTest, ElasticTrainer_KilledOrStoppedInEpoch_ResultIsBitwiseEqual) {
  const End configured = Configure("captions_build", "", "tests/install/captions");
  ASSERT_EQ(configured.code, 0) << configured.err;
  const End built = Shell("cmake --build captions_build", InDir(""));
  ASSERT_EQ(built.code, 0) << built.out << built.err;
  const auto train = [](const std::string& arguments) {
    return Shell(absl::StrCat(Quoted(Prefix() + "/bin/ddprun"),
                              " --standalone --nproc-per-node=2 --max-restarts=1 --no-python captions_build/captions ",
                              arguments),
                 InDir(""));
  };

  const End whole = train("whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const std::map<std::string, std::string> steps = Lines(whole.out, "step"), final = Lines(whole.out, "final");
  EXPECT_EQ(steps.size(), 20) << whole.out;
  EXPECT_EQ(final.size(), 12) << whole.out;

  // The pictures of a step: 2 ranks, 2 batches of 4.
  const End lost = Well(train("lost lose 13"));
  EXPECT_TRUE(absl::StrContains(lost.err, "SIGKILL")) << lost.err;
  EXPECT_TRUE(absl::StrContains(lost.out, "begins at step 0, epoch 0, position 0\n")) << lost.out;
  EXPECT_FALSE(absl::StrContains(lost.out, "begins at step 10")) << "a survivor keeps its process\n" << lost.out;
  EXPECT_EQ(Lines(lost.out, "step"), steps);
  EXPECT_EQ(Lines(lost.out, "final"), final);

  const End killed = Well(train("killed die 13"));
  EXPECT_TRUE(absl::StrContains(killed.out, "begins at step 10, epoch 1, position 56\n")) << killed.out;
  EXPECT_EQ(Lines(killed.out, "step"), steps);
  EXPECT_EQ(Lines(killed.out, "final"), final);

  const End stopped = train("stopped stop 17");
  EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.err;
  EXPECT_FALSE(absl::StrContains(stopped.out, "final")) << stopped.out;
  const End resumed = Well(train("stopped"));
  EXPECT_TRUE(absl::StrContains(resumed.out, "begins at step 18, epoch 2, position ")) << resumed.out;
  EXPECT_EQ(Lines(stopped.out + resumed.out, "step"), steps);
  EXPECT_EQ(Lines(resumed.out, "final"), final);
}

}  // namespace
}  // namespace ddprun::testing

// Uncaught exceptions in each version of Python that this host has.
#include <glob.h>
#include <pwd.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/e2e/launch.h"

namespace ddprun::testing {
namespace {

constexpr int kOldest = 8, kNewest = 14;  // minor versions

// An interpreter of the distribution, pyenv or uv; empty: there is none.
std::string FindPython(int minor) {
  const passwd* const user = getpwuid(getuid());
  const std::string home = user == nullptr ? "" : user->pw_dir, name = absl::StrCat("/bin/python3.", minor);
  for (const std::string& pattern :
       {"/usr" + name, "/usr/local" + name, absl::StrCat(home, "/.pyenv/versions/3.", minor, ".*", name),
        absl::StrCat(home, "/.local/share/uv/python/cpython-3.", minor, ".*", name)}) {
    glob_t found = {};
    const std::string first = glob(pattern.c_str(), 0, nullptr, &found) == 0 ? found.gl_pathv[0] : "";
    globfree(&found);
    if (!first.empty()) return first;
  }
  return "";
}

struct PythonCause {
  const char* name;
  const char* script;
  const char* message;
  std::vector<const char*> traceback;  // parts of it
  std::vector<std::string> flags = {};
};

constexpr char kChain[] =
    "import broken\n"
    "try:\n  broken.f()\nexcept ValueError as error:\n  raise RuntimeError('after it') from error\n";
const std::vector<const char*> kChainTraceback = {"broken.py\", line 1, in f", "ValueError: in a module",
                                                  "direct cause of", "train.py\", line 5, in <module>",
                                                  "RuntimeError: after it"};

const PythonCause kPythonCauses[] = {
    {"Chain", kChain, "RuntimeError: after it", kChainTraceback},
    {"ChainPreloaded", kChain, "RuntimeError: after it", kChainTraceback, {"--preload=json"}},
    {"ImporterRaises",
     "import sys\nclass Importer:\n  def find_spec(*_): raise TypeError('in the importer')\n"
     "sys.meta_path.insert(0, Importer())\nraise ValueError('first')\n",
     "ValueError: first",
     {"    raise ValueError('first')"}},
    {"LibraryIsGone",
     "import encodings\nencodings.__path__[0] = '/nowhere'\ndef f(): raise ValueError('first')\nf()\n",
     "ValueError: first",
     {"Traceback (most recent call last):", "line 4, in <module>", "line 3, in f"}},
    {"OutOfDescriptors",
     "import resource\n"
     "resource.setrlimit(resource.RLIMIT_NOFILE, (20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
     "files = []\nwhile True: files.append(open('/dev/null'))\n",
     "OSError: [Errno 24] Too many open files: '/dev/null'",
     {"    while True: files.append(open('/dev/null'))"}},
    {"PrintedInASubinterpreter",
     "try:\n  import _testcapi\nexcept ImportError:\n  raise ValueError('real')\n"
     "_testcapi.run_in_subinterp('raise TypeError(\"printed\")')\nraise ValueError('real')\n",
     "ValueError: real",
     {"in <module>"}},
};

class CausesInPythonTest : public ::testing::TestWithParam<int> {
 protected:
  CausesInPythonTest() { std::ofstream(dir_.File("broken.py")) << "def f(): raise ValueError('in a module')\n"; }

  // The development mode checks every block of memory that Python frees.
  Finished Run(int code, const std::string& script, std::vector<std::string> flags = {}) const {
    std::ofstream(dir_.File("train.py")) << script;
    flags.insert(flags.end(), {"--standalone", dir_.File("train.py")});
    return Finished(code, flags, {{"PYTHON_EXEC", python_}, {"PYTHONDEVMODE", "1"}, {"PYTHONWARNINGS", "ignore"}});
  }

  const TempDir dir_;
  const std::string python_ = FindPython(GetParam());
};

TEST_P(CausesInPythonTest, UncaughtException_HasTypeMessageAndTraceback) {
  if (python_.empty()) GTEST_SKIP() << "no Python 3." << GetParam();
  for (const PythonCause& cause : kPythonCauses) {
    SCOPED_TRACE(cause.name);
    const std::string err = Run(1, cause.script, cause.flags).Err();
    // Not from stderr, which a terminal keeps.
    EXPECT_THAT(err, AllOf(HasSubstr(absl::StrCat("  message   : ", cause.message, "\n  traceback : Traceback (")),
                           Not(HasSubstr("last lines of stderr"))));
    for (const char* part : cause.traceback) EXPECT_THAT(err.substr(err.find("Root Cause")), HasSubstr(part));
  }
}

TEST_P(CausesInPythonTest, ScriptThatEnds_Succeeds) {
  if (python_.empty()) GTEST_SKIP() << "no Python 3." << GetParam();
  EXPECT_EQ(Run(0, "print('done')\n").Out(), "done\n");
}

INSTANTIATE_TEST_SUITE_P(Versions, CausesInPythonTest, ::testing::Range(kOldest, kNewest + 1),
                         [](const auto& info) { return absl::StrCat("3_", info.param); });

}  // namespace
}  // namespace ddprun::testing

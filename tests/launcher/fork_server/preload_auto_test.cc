// --preload=auto imports what the script and the modules beside it import first, in the same surroundings, and nothing
// that they might change before.
#include "tests/launcher/fork_server/preload_testing.h"

namespace ddprun::testing {
namespace {

// Keeps what it saw when it was imported.
constexpr char kSees[] = R"(
import os, sys, warnings
SEEN = [os.environ.get("SEEN"), sys.path[:2], sys.path[-1], "mine" in str(warnings.filters)]
)";

constexpr char kPrints[] = R"(
import os, sys
print(globals().get("sees") and sees.SEEN, os.environ.get("SEEN"), sys.path)
)";

class PreloadAutoTest : public PreloadTest {
 protected:
  void SetUp() override {
    PreloadTest::SetUp();
    Write(Installed("sees.py"), kSees);
    Write(Installed("other.py"), "");
  }
  // Runs the script with and without --preload and compares. Returns the log of the first.
  std::string ExpectAutoAlike(const std::string& text) const {
    const std::string script = Script(absl::StrCat(text, kPrints));
    Launcher forked(Flags({"--preload"}, {script}), Environment());
    Launcher started(Flags({"--preload=none"}, {script}), Environment());
    EXPECT_EQ(forked.Wait(), started.Wait()) << forked.Err();
    EXPECT_EQ(forked.Out(), started.Out());
    return forked.Err();
  }
  static bool IsImported(const std::string& err, const std::string& names) {
    return std::regex_search(err, std::regex(absl::StrCat(" imported ([a-z_.]+,)*(", names, ")(,| in )")));
  }
};

TEST_F(PreloadAutoTest, HarmlessStatements_AreFollowed) {
  const char* const kScripts[] = {
      "import os\nos.environ['SEEN'] = 'set'\nimport sees",
      "import os\nos.environ.setdefault('SEEN', 'set')\nimport sees",
      "import os\nos.environ.update({'SEEN': 'one'}, OTHER='1')\nos.environ['SEEN'] = 'two'\nimport sees",
      "import os\nos.environ['SEEN'] = 'set'\nimport sees\ndel os.environ['SEEN']",
      "import sys, os\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'src'))\nimport sees",
      "import sys\nfrom pathlib import Path\nsys.path.append(str(Path(__file__).resolve().parent / 'src'))\nimport "
      "sees",
      "import warnings\nwarnings.filterwarnings('ignore', message='mine', category=UserWarning)\nimport sees",
      "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import nowhere\nelse:\n  import sees",
      "try:\n  import nowhere\nexcept ImportError:\n  import sees",
      "try:\n  import sees, nowhere\nexcept (ImportError, ModuleNotFoundError):\n  nowhere = None",
      "import sys\nif sys.version_info >= (3, 0):\n  import sees\nelse:\n  import nowhere",
      "X, Y = 1, [2]\nZ: int = X + 1\n__all__ = ['X']\ndef f(x=1):\n  return x\nimport sees",
      "import logging, os\nlog = logging.getLogger(__name__)\nlr = float(os.environ.get('LR', 1))\nimport sees",
      "class Net:\n  'Text.'\n  size: int = 3\n  def f(self):\n    pass\nimport sees",
      "if __name__ == '__main__':\n  import sees",
      "import os.path as p, sees as s, sees",
  };
  for (const char* script : kScripts) {
    SCOPED_TRACE(script);
    const std::string err = ExpectAutoAlike(script);
    EXPECT_TRUE(IsImported(err, "sees")) << err;
    EXPECT_EQ(Count(err, "WARNING"), 0) << err;
  }
}

TEST_F(PreloadAutoTest, StatementsThatMayChangeImports_EndThePlan) {
  const char* const kScripts[] = {
      "import os, other\nos.environ['SEEN'] = str(os.getpid() * 0)\nimport sees",
      "import os, other\nos.environ['RANK'] = '1'\nimport sees",
      "import os, other\ndel os.environ['HOME']\nimport sees",
      "import sys, other\nsys.path[0:0] = ['/nowhere']\nimport sees",
      "import other\nexec('import os; os.environ[\"SEEN\"] = \"1\"')\nimport sees",
      "import other\ntry:\n  import os\n  os.environ['SEEN'] = ascii(1)\nexcept ImportError:\n  pass\nimport sees",
      "import other\nif len('a'):\n  import os\nimport sees",
  };
  for (const char* script : kScripts) {
    SCOPED_TRACE(script);
    const std::string err = ExpectAutoAlike(script);
    EXPECT_TRUE(IsImported(err, "other")) << err;
    EXPECT_FALSE(IsImported(err, "sees")) << err;
  }
}

TEST_F(PreloadAutoTest, ModulesBesideTheScript_AreFollowedAndNotImported) {
  mkdir(folder_.File("src").c_str(), 0700);
  mkdir(folder_.File("package").c_str(), 0700);
  Write(folder_.File("beside.py"), "import os\nprint('beside', os.environ['RANK'])\n");
  Write(folder_.File("src/far.py"), "import sees\n");
  Write(folder_.File("trainer.py"),
        "import other, sees\nPARTS = [print('trainer') for _ in range(1)]\nimport decimal\n");
  Write(folder_.File("package/__init__.py"), "from .one import ONE\nfrom . import two\n");
  Write(folder_.File("package/one.py"), "ONE = 1\n");
  Write(folder_.File("package/two.py"), "from package.one import ONE\nimport sees\n");
  // The first sets the variable when it is called, the second one when it is imported.
  Write(folder_.File("calls.py"), "import os\ndef set_up():\n  os.environ['SEEN'] = '1'\n");
  Write(folder_.File("sets.py"), absl::StrCat(ReadFile(folder_.File("calls.py")), "set_up()\n"));
  Write(folder_.File("sets_too.py"), "from calls import set_up as call\nif True and call() is None:\n  pass\n");
  Write(folder_.File("does_not.py"), "import calls\ndef later():\n  calls.set_up()\nX = [1 for _ in range(2)]\n");
  Write(folder_.File("cycle.py"), "import cycle, sees\n");
  const std::pair<const char*, bool> kScripts[] = {
      {"import trainer", true},
      {"from trainer import PARTS", true},
      {"import package", true},
      {"from package import two", true},
      {"import beside, sees", true},
      {"import sys, os.path\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'src'))\nimport far", true},
      {"import sys\nsys.path.insert(0, __file__.replace('script.py', 'src'))\nimport far", false},
      {"import cycle", true},
      {"import calls, sees", true},
      {"import sets, sees", false},
      {"import sets_too, sees", false},
      {"import does_not, sees", true},
  };
  for (const auto& [script, preloaded] : kScripts) {
    SCOPED_TRACE(script);
    const std::string err = ExpectAutoAlike(script);
    EXPECT_EQ(IsImported(err, "sees"), preloaded) << err;
    EXPECT_FALSE(IsImported(err, "beside|trainer|package|package.two|far|decimal")) << err;
  }
}

// A warning says why torch is not preloaded, and where.
TEST_F(PreloadAutoTest, StopsBeforeTorch_Warns) {
  Write(Installed("torch.py"), "class default_generator:\n  def seed():\n    pass\n");
  const std::string why = "--preload: torch is not preloaded, because script.py:2 (print(1)) comes first";
  Finished after(0, Flags({"--preload"}, {Script("import other\nprint(1)\nimport torch\n")}), Environment());
  EXPECT_EQ(Count(after.Err(), why), 1) << after.Err();
  Finished before(0, Flags({"--preload"}, {Script("import torch\nprint(1)\nimport other\n")}), Environment());
  EXPECT_EQ(Count(before.Err(), "WARNING"), 0) << before.Err();
  Finished without(0, Flags({"--preload"}, {Script("import other\nprint(1)\n")}), Environment());
  EXPECT_EQ(Count(without.Err(), "WARNING"), 0) << without.Err();
}

TEST_F(PreloadAutoTest, Auto_ImportsOnceWhatTheScriptBeginsWith) {
  Write(Installed("installed_module.py"), kNotes);
  Write(folder_.File("beside.py"), "import os\nprint(f\"beside {os.environ['RANK']}\\n\", end='')\n");
  const std::string script = Script(R"("""Text."""
from __future__ import annotations
import beside
import json as j, installed_module
from xml import dom
from os.path import *
value = list(range(3))
import decimal
print(f"rank {j.dumps(1)} {dom.__name__}\n", end="")
)");
  Finished launcher(0, Flags({"--nproc-per-node=4", "--preload"}, {script}), Environment());
  EXPECT_EQ(Count(launcher.Out(), "rank 1 xml.dom\n"), 4) << launcher.Out();
  EXPECT_EQ(Count(launcher.Out(), "beside "), 4);
  EXPECT_EQ(ReadFile(Installed("imports")), "imported\n");
  EXPECT_EQ(Count(launcher.Err(), "imported __future__,os,json,installed_module,xml,os.path in "), 1) << launcher.Err();
}

TEST_F(PreloadAutoTest, Auto_NothingToImport_StartsWithoutServer) {
  Finished launcher(0,
                    Flags({"--nproc-per-node=2", "--preload=auto"}, {Script("print('ran\\n', end='')\nimport json\n")}),
                    Environment());
  EXPECT_EQ(launcher.Out(), "ran\nran\n");
  EXPECT_EQ(Count(launcher.Err(), "WARNING"), 1) << launcher.Err();
  EXPECT_EQ(Count(launcher.Err(), "--preload: torch is not preloaded, because script.py:1 (print("), 1);
  Finished plain(0, Flags({"--preload=auto"}, {Script("X = 1\n")}), Environment());
  EXPECT_EQ(Count(plain.Err(), "WARNING"), 0) << plain.Err();
}

}  // namespace
}  // namespace ddprun::testing

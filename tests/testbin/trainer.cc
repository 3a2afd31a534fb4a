// trainer [steps]: simulates a training. Counts steps of a tenth of a second; rank 0 writes the count to ./checkpoint
// at every fifth step, at the last one, and on SIGTERM and SIGUSR1; a restart continues from there. Prints its
// progress, a line at a time. Exits with 0 after the last step, with 143 on SIGTERM.
//   FAIL_WITH=7 FAIL_AT=20   rank 1 exits with 7 at step 20, unless it started there
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

volatile sig_atomic_t terminated = 0, warned = 0;

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "?" : value;
}

class Trainer {
 public:
  Trainer() {
    if (FILE* file = fopen("checkpoint", "r")) {
      if (fscanf(file, "%d", &step_) != 1) step_ = 0;
      fclose(file);
    }
  }

  int Train(int steps) {
    const int begun = step_, fail_at = atoi(Variable("FAIL_AT").c_str());
    Say("begins", ", pid " + std::to_string(getpid()));
    while (step_ < steps) {
      const timespec tenth = {0, 100'000'000};
      nanosleep(&tenth, nullptr);
      if (warned != 0) {
        warned = 0;
        Save();
        Say("USR1");
      }
      if (terminated != 0) {
        Save();
        Say("TERM", ", " + Variable("DDPRUN_STOP_GRACE") + " s left");
        return 143;
      }
      if (++step_ % 5 == 0) Save();
      if (Variable("RANK") == "1" && step_ == fail_at && begun < fail_at) {
        Say("fails");
        return atoi(Variable("FAIL_WITH").c_str());
      }
    }
    Save();
    Say("done");
    return 0;
  }

 private:
  void Save() const {
    if (Variable("RANK") != "0") return;
    FILE* file = fopen("checkpoint.new", "w");
    if (file == nullptr) return;
    fprintf(file, "%d\n", step_);
    fclose(file);
    rename("checkpoint.new", "checkpoint");
  }

  void Say(const std::string& what, const std::string& more = "") const {
    const std::string line = "rank " + Variable("RANK") + " of " + Variable("WORLD_SIZE") + " on " +
                             Variable("SLURMD_NODENAME") + ", round " + Variable("DDPRUN_ROUND") + ": " + what +
                             " at step " + std::to_string(step_) + more + "\n";
    if (write(1, line.data(), line.size()) < 0) _exit(1);
  }

  int step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  signal(SIGTERM, [](int) { terminated = 1; });
  signal(SIGUSR1, [](int) { warned = 1; });
  return Trainer().Train(argc > 1 ? atoi(argv[1]) : 1'000'000);
}

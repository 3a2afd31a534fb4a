#ifndef DDPRUN_LAUNCHER_CRASH_REPORT_RECORDED_READS_H_
#define DDPRUN_LAUNCHER_CRASH_REPORT_RECORDED_READS_H_

#include <stddef.h>

namespace ddprun::launcher {

// Starts the record if DDPRUN_RECORD_READS is set, and removes that variable. The record has what native code asks
// getenv for, files and folders that Python reads, and actions after which a process must not be kept. Call before
// Python starts.
void RecordReads();

}  // namespace ddprun::launcher

extern "C" {

// Ends the record and returns its size; `text` becomes its entries, each with a NUL at its end: "E NAME" (a variable),
// "F PATH" (a file), "D PATH" (a folder) and "X ACTION". Nothing is recorded in forked processes afterwards. Without a
// record: one entry, "X no record".
__attribute__((visibility("default"))) size_t ddprun_recorded_reads(const char** text);
// Between calls with false and true nothing is recorded.
__attribute__((visibility("default"))) void ddprun_record_reads(bool on);
}

#endif  // DDPRUN_LAUNCHER_CRASH_REPORT_RECORDED_READS_H_

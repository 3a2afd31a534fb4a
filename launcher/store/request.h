#ifndef DDPRUN_LAUNCHER_STORE_REQUEST_H_
#define DDPRUN_LAUNCHER_STORE_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::launcher {

// Requests of c10d's TCPStore protocol plus one of our own, with their wire values. The tests run against the torch
// that scripts/setup installs (2.11); clients of 2.6 to 2.15 were compared by hand.
enum class Opcode : uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompareSet = 2,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kNumKeys = 7,
  kDeleteKey = 8,
  kAppend = 9,
  kMultiGet = 10,
  kMultiSet = 11,
  kCancelWait = 12,
  kPing = 13,
  kQueuePush = 14,
  kQueuePop = 15,
  kQueueLength = 16,
  kListKeys = 17,
  kBarrier = 18,        // torch 2.13 and later
  kRegisterNode = 0xD0  // a launcher registers its ranks; see registration.h
};

// Magic number in VALIDATE, the first request of every connection.
inline constexpr uint32_t kValidateMagic = 0x3C85F7CE;

// One complete request. The opcode determines which members are used:
//
//   kValidate            number = magic           kPing               number = nonce
//   kSet, kAppend        keys[0], values[0]       kCompareSet         keys[0], values[0] expected, [1] desired
//   kGet, kDeleteKey     keys[0]                  kAdd                keys[0], number = delta
//   kCheck, kWait        keys                     kMultiGet           keys
//   kMultiSet            keys[i], values[i]       kBarrier            keys[0], number = world size
//   kQueuePush           keys[0], values[0]       kQueuePop, -Length  keys[0]
//   kRegisterNode        values[0] = payload      others              nothing
//
// Keys and values are arbitrary bytes.
struct Request {
  Opcode opcode = Opcode::kValidate;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  int64_t number = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORE_REQUEST_H_

#ifndef DDPRUN_RENDEZVOUS_WIRE_LEADER_HINT_H_
#define DDPRUN_RENDEZVOUS_WIRE_LEADER_HINT_H_

// Metadata of calls to one of several servers (protocol 4.8). A follower ends every call with FAILED_PRECONDITION,
// without initial metadata and with these keys in the trailing metadata; a caller that fails authentication receives
// kServerMarker instead. A leader sends the epoch in the initial metadata of a session.
namespace ddprun::rendezvous {

// A follower sends "1".
inline constexpr char kFollowerKey[] = "ddprun-follower";
// A follower sends the leader's HOST:PORT, or nothing if there is no leader or it does not know the leader.
inline constexpr char kLeaderKey[] = "ddprun-leader";
// A leader sends its epoch in decimal. A follower sends the epoch of the latest leader, which it read from etcd after
// the call began, or nothing if it does not know it.
inline constexpr char kEpochKey[] = "ddprun-epoch";

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_LEADER_HINT_H_

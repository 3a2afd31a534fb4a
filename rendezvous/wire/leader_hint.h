#ifndef DDPRUN_RENDEZVOUS_WIRE_LEADER_HINT_H_
#define DDPRUN_RENDEZVOUS_WIRE_LEADER_HINT_H_

// Metadata of calls to one of several servers (protocol 4.8). A follower ends every call with FAILED_PRECONDITION,
// without initial metadata, and with these as trailing metadata; a caller whom it refuses gets kServerMarker instead. A
// leader sends the epoch as initial metadata of a session.
namespace ddprun::rendezvous {

// Follower: "1".
inline constexpr char kFollowerKey[] = "ddprun-follower";
// Follower: HOST:PORT of the leader. Absent: nobody leads, or that is not known.
inline constexpr char kLeaderKey[] = "ddprun-leader";
// Decimal. Leader: its epoch. Follower: that of the latest leader, as etcd said after the call began; absent: not
// known.
inline constexpr char kEpochKey[] = "ddprun-epoch";

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_LEADER_HINT_H_

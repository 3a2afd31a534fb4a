#include "launcher/report/nccl_hint.h"

#include <gmock/gmock.h>

namespace ddprun::launcher {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Hint(const std::string& message, const std::string& traceback = "", const std::string& interface = "eth1") {
  rendezvous::WorkerFailure failure = rendezvous::NewFailure();
  failure.set_message(message);
  failure.set_traceback(traceback);
  return NcclHint(failure, interface);
}

// As ProcessGroupNCCL reports it; "Last error" is NCCL's own line.
std::string DistBackendError(const std::string& last_error) {
  return "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, "
         "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5\n"
         "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n"
         "Last error:\n" +
         last_error;
}

TEST(NcclHint, UnreachableAddress_NamesTheVariableAndTheLaunchersInterface) {
  for (const char* error : {"socketPollConnect: Connect to 172.17.0.2<43077> returned 113(No route to host) errno 115",
                            "socketStartConnect: Connect to 172.17.0.2<43077> failed : Network is unreachable",
                            "Bootstrap : no socket interface found"}) {
    EXPECT_THAT(Hint(DistBackendError(error)),
                AllOf(HasSubstr("NCCL_SOCKET_IFNAME"), HasSubstr("here the launchers use eth1"), Not(HasSubstr("\n"))))
        << error;
  }
  EXPECT_THAT(Hint("DistBackendError", DistBackendError("socketPollConnect: ...")), HasSubstr("NCCL_SOCKET_IFNAME"))
      << "in the traceback";
  EXPECT_THAT(Hint(DistBackendError("socketPollConnect: ..."), "", ""), Not(HasSubstr("here the launchers")));
}

TEST(NcclHint, Infiniband_NamesItsVariables) {
  for (const char* error :
       {"NET/IB : Got completion from peer 10.0.0.2<38123> with status=12 opcode=0 len=0 vendor err 129",
        "Call to ibv_modify_qp failed with 110 Connection timed out"}) {
    EXPECT_THAT(Hint(DistBackendError(error)), AllOf(HasSubstr("NCCL_IB_HCA"), HasSubstr("NCCL_IB_DISABLE=1")))
        << error;
  }
}

TEST(NcclHint, OtherFailures_HaveNone) {
  for (const std::string& message :
       {DistBackendError("Error while creating shared memory segment /dev/shm/nccl-Bq3Kzv (size 33030528)"),
        DistBackendError(""), std::string("ValueError: socketPollConnect"),
        std::string("NCCL error: remote process exited or there was a network error")}) {
    EXPECT_EQ(Hint(message), "") << message;
  }
}

}  // namespace
}  // namespace ddprun::launcher

#!/bin/sh
# A worker need not be Python: it can be any program, and reads its rank from the environment.
#
#   bin/ddprun --standalone --nproc-per-node=4 --no-python examples/shell/worker.sh
echo "rank $RANK of $WORLD_SIZE, local rank $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK of $GROUP_WORLD_SIZE," \
  "master $MASTER_ADDR:$MASTER_PORT, restart $TORCHELASTIC_RESTART_COUNT of at most $TORCHELASTIC_MAX_RESTARTS"

#!/bin/bash
# Run by tutorial.sbatch on every node.
source .venv/bin/activate
bin/ddprun --nnodes=2 --nproc_per_node="${NPROC:-8}" --rdzv_id=100 --rdzv_backend=c10d \
  --rdzv_endpoint=$MASTER_ADDR:29400 examples/python/toy_elastic.py

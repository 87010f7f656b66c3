#!/bin/bash
SCRIPT_DIR=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
NUM_NODES=2
MAX_STEPS=30
# uv run examples/run_sft.py in an earlier version
cd "$PROJECT_ROOT"
uv run examples/run_grpo.py \
    --config "$CONFIG_PATH" \
    grpo.max_num_steps=$MAX_STEPS \
    logger.log_dir=$LOG_DIR \
    $@ \
    2>&1 | tee "$RUN_LOG"
uv run examples/run_eval.py

#!/bin/bash
uv run examples/nemo_gym/run_grpo_nemo_gym.py "$@"

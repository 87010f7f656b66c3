"""Train with GRPO: `python examples/run_grpo.py --config RECIPE [key=value ...]`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_RECIPE = ROOT / "examples" / "configs" / "grpo-mlp256-1n0g.yaml"

# These matrices are too small to share: one thread is faster than two, and its sums come out the same each time.
# numpy reads this when it is imported, so it is set before.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(ROOT))

from nemo_digits import console  # noqa: E402
from nemo_digits.checkpoint import as_plain  # noqa: E402
from nemo_digits.config import ConfigError, load_config  # noqa: E402
from nemo_digits.grpo import setup  # noqa: E402
from nemo_digits.logger import MetricsLog, next_experiment_dir  # noqa: E402


def main() -> None:
    """Read the recipe, train, and leave through `sys.exit(2)` when the recipe or an override is wrong."""
    parser = argparse.ArgumentParser(description="GRPO on handwritten numbers.", allow_abbrev=False)
    parser.add_argument("--config", default=str(DEFAULT_RECIPE), metavar="RECIPE", help="default: %(default)s")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="such as grpo.max_num_steps=10")
    arguments = parser.parse_intermixed_args()
    try:
        config = load_config(Path(arguments.config), arguments.overrides)
        _print_at_once()
        log_dir = next_experiment_dir(config.logger.log_dir)
        checkpoint_dir = config.checkpointing.checkpoint_dir if config.checkpointing.enabled else ""
        console.start(arguments.config, arguments.overrides, as_plain(config), log_dir, checkpoint_dir)
        trainer = setup(config, MetricsLog(log_dir))
    except ConfigError as error:
        parser.error(str(error))
    trainer.train()


def _print_at_once() -> None:
    """A log must be whole when the run is killed, and readable whatever the locale is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)


if __name__ == "__main__":
    main()

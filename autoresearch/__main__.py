"""`python -I -m autoresearch VERB`: load the one module of the verb, run it, turn errors into messages and codes."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what signal wraps, which takes a millisecond
import gc
import os
import sys

from autoresearch.errors import AutoresearchError
from autoresearch.leaving import leave


def main(argv: list[str]) -> int:
    """Run the verb named in `argv` and return its exit code (DESIGN section 4)."""
    from importlib import import_module

    verb = argv[0].replace("-", "_") if argv else "help"
    try:
        run = import_module(f"autoresearch.verbs.{verb}").run
        code = run()
        sys.stdout.flush()
        return int(code)
    except AutoresearchError as error:
        sys.stdout.flush()
        print(error, file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        # Die of the signal: a script around us takes an exit code for an answer, and would go on with its next line.
        sys.stdout.flush()
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        os.kill(os.getpid(), _signal.SIGINT)
        return 130
    except BrokenPipeError:
        # The reader (head, less) is gone; without this Python reports it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"autoresearch: {verb}: {error}: check disk space and permissions, then try again", file=sys.stderr)
        return 1


if __name__ == "__main__":
    # Who starts us may ignore it, and then no child of ours could be waited for.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    gc.disable()  # a verb ends before there is garbage worth looking for; a supervisor turns it on again
    leave(main(sys.argv[1:]))

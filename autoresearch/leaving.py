"""The last step of a process of ours."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NoReturn


def leave(code: int) -> NoReturn:
    """Write out what was said and end the process with `code`, without taking its objects apart one by one.

    That costs 3 ms, and 18 with a ledger of 10,000 rows. Nothing of ours waits for it: locks are the kernel's, files
    are closed by their own blocks. What cannot be written (a full disk, a reader that is gone) makes a success a 1.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            code = code or 1
    os._exit(code)

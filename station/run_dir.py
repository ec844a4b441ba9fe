"""The private directory of one run: sockets, configurations and records; gone with the run. Knows none of its files."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(r"midair-(?P<owner>\d+)-\w+")


@contextlib.contextmanager
def make() -> Iterator[Path]:
    """A new directory, mode 0700, under TMPDIR; removed at the end. What killed runs left there is removed first.

    Raises:
        OSError: it cannot be made.
    """
    sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"midair-{os.getpid()}-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def sweep(place: Path) -> None:
    """Remove directories of this user's runs whose process is gone: one that is killed cannot clean up."""
    with contextlib.suppress(OSError):
        for path in place.iterdir():
            match = _NAME.fullmatch(path.name)
            if match and not path.is_symlink() and path.lstat().st_uid == os.getuid() and not _alive(match["owner"]):
                shutil.rmtree(path, ignore_errors=True)


def _alive(owner: str) -> bool:
    try:
        os.kill(int(owner), 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True

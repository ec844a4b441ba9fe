"""The machine and the sources that figures belong to. Measures nothing."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import psutil

BUSY_SHARE = 0.15
"""Of a core: other people's load above which ratios are preliminary."""


def cpu() -> str:
    """Name of the processor as the kernel tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def name() -> str:
    """Short name, fit for a file: processor and cores."""
    words = re.sub(r"\(.*?\)|\bcpu\b|\bprocessor\b|@.*", " ", cpu().lower())
    return "-".join([*re.findall(r"[a-z0-9]+", words), f"{cores()}-core{'s' if cores() > 1 else ''}"])


def busy_share(seconds: float = 0.5) -> float:
    """Share of all cores that somebody uses right now, watched for ``seconds`` of the host."""
    return psutil.cpu_percent(interval=seconds) / 100.0


def described(busy: float) -> dict[str, Any]:
    """What figures were measured on.

    Args:
        busy: share of the cores in use before the bench began.
    """
    return {
        "name": name(),
        "cpu": cpu(),
        "cores": cores(),
        "memory_GB": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "busy_before": round(busy, 2),
    }


def commit(root: Path) -> str:
    """Commit of the checkout, with ``+`` behind when tracked files differ from it; ``unknown`` without git."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
        changes = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "")

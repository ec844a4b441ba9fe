"""A source's clock seen from the host, from the stamps of its frames alone. Knows no filter and no socket.

Each frame gives ``arrival - source`` = clock offset + latency. The smallest of a second is the offset plus the smallest
latency; a line through the last 20 such minima follows the drift. Sliding minima without the line are biased by it:
1 ms at 40 ppm over 30 s, against 8 us for the line (simulated, 200 Hz, exponential jitter).
"""

from __future__ import annotations

from typing import NamedTuple

BLOCK_S = 1.0
BLOCKS = 20
LINE_BLOCKS = 3
"""Fewer minima than this and the line's slope is noise: the newest minimum is used instead."""
STEP_S = 0.02
STEP_FRAMES = 8
STEP_SPREAD_S = 0.008
"""A burst after a stall is late by amounts that fall by a period a frame; after a clock step they stay together."""
DRIFT_MAX = 5e-4


class Sync(NamedTuple):
    """What is known of one source's clock."""

    blocks: tuple[tuple[float, float], ...] = ()
    """Minimum of each finished block: source time, offset."""
    block_end: float = 0.0
    """Source time at which the current block is full."""
    low: tuple[float, float] | None = None
    """Minimum of the current block."""
    anchor: float = 0.0
    offset: float = 0.0
    drift: float = 0.0
    """The offset at source time t is ``offset + drift (t - anchor)``."""
    strays: tuple[float, ...] = ()
    """Offsets of the latest run of frames that are off the line by more than `STEP_S`."""
    steps: int = 0
    """How often the source's clock has stepped."""


def offset_at(sync: Sync, t_source: float) -> float:
    """Host minus source time at ``t_source``, s, including the smallest latency seen."""
    return sync.offset + sync.drift * (t_source - sync.anchor)


def to_host(sync: Sync, t_source: float) -> float:
    """Host time of a source's stamp, s. The sync must have observed a frame."""
    return t_source + offset_at(sync, t_source)


def quality(sync: Sync) -> str:
    """How the line stands: ``none``, ``minimum`` (first seconds) or ``line``."""
    if sync.low is None and not sync.blocks:
        return "none"
    return "line" if len(sync.blocks) >= LINE_BLOCKS else "minimum"


def _line(points: list[tuple[float, float]], anchor: float) -> tuple[float, float]:
    n = len(points)
    mean_t = sum(t - anchor for t, _ in points) / n
    mean_o = sum(o for _, o in points) / n
    stt = sum((t - anchor - mean_t) ** 2 for t, _ in points)
    sto = sum((t - anchor - mean_t) * (o - mean_o) for t, o in points)
    drift = max(-DRIFT_MAX, min(DRIFT_MAX, sto / stt)) if stt > 0.0 else 0.0
    return mean_o - drift * mean_t, drift


def _fit(blocks: tuple[tuple[float, float], ...]) -> tuple[float, float, float]:
    """Anchor, offset and drift of the line; a second in which every frame was late is left out."""
    anchor = blocks[-1][0]
    offset, drift = _line(list(blocks), anchor)
    above = [o - offset - drift * (t - anchor) for t, o in blocks]
    limit = max(1e-4, 3.0 * sorted(abs(r) for r in above)[len(above) // 2])
    kept = [point for point, r in zip(blocks, above, strict=True) if r <= limit]
    if LINE_BLOCKS <= len(kept) < len(blocks):
        offset, drift = _line(kept, anchor)
    return anchor, offset, drift


def _start(t_source: float, offset: float, steps: int) -> Sync:
    return Sync(block_end=t_source + BLOCK_S, low=(t_source, offset), anchor=t_source, offset=offset, steps=steps)


def observe(sync: Sync, t_source: float, t_arrival: float) -> Sync:
    """The sync after one frame.

    Args:
        sync: before the frame.
        t_source: stamp of the frame by the source's clock, s.
        t_arrival: host time of its arrival less every part of its latency that is known, s.

    """
    offset = t_arrival - t_source
    if sync.low is None and not sync.blocks:
        return _start(t_source, offset, sync.steps)
    if abs(offset - offset_at(sync, t_source)) > STEP_S:
        strays = (*sync.strays, offset)[-STEP_FRAMES:]
        if len(strays) == STEP_FRAMES and max(strays) - min(strays) < STEP_SPREAD_S:
            return _start(t_source, min(strays), sync.steps + 1)
        return sync._replace(strays=strays)
    blocks, low, block_end = sync.blocks, sync.low, sync.block_end
    if t_source >= block_end:
        blocks = (*blocks, low)[-BLOCKS:] if low is not None else blocks
        low, block_end = (t_source, offset), t_source + BLOCK_S
        sync = sync._replace(blocks=blocks, block_end=block_end, strays=())
        if len(blocks) >= LINE_BLOCKS:
            anchor, line, drift = _fit(blocks)
            return sync._replace(low=low, anchor=anchor, offset=line, drift=drift)
    elif low is None or offset < low[1]:
        low = (t_source, offset)
    elif not sync.strays:
        return sync
    if len(blocks) < LINE_BLOCKS:
        best = low if not blocks or low[1] < blocks[-1][1] else blocks[-1]
        return sync._replace(low=low, anchor=best[0], offset=best[1], drift=0.0, strays=())
    return sync._replace(low=low, strays=())

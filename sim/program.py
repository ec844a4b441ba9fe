"""A compiled function from arrays to arrays of one structure, called with as little ado as JAX allows. No physics.

A call of a compiled function costs about half a microsecond for each array that comes out and a tenth for each that
goes in. So an array comes out only if it is new: what a step leaves alone, hands on or gives twice is put in its place
here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


class Program:
    """``move(tree, n, diagonal) -> tree`` on the leaves of a tree.

    Args:
        move: the function.
        tree: the structure that it takes and gives.
    """

    def __init__(self, move: Callable[[Any, int, bool], Any], tree: Any) -> None:
        self._sources: dict[tuple[int, bool], list[tuple[bool, int]]] = {}

        def run(leaves: list[jax.Array], n: int, diagonal: bool) -> list[jax.Array]:
            after, after_tree = jax.tree.flatten(move(jax.tree.unflatten(tree, leaves), n, diagonal))
            if after_tree != tree:
                raise TypeError(f"a stage has changed the structure of data from {tree} to {after_tree}")
            given = {id(leaf): i for i, leaf in reversed([*enumerate(leaves)])}
            new: dict[int, int] = {}
            out, sources = [], []
            for leaf in after:
                if id(leaf) in given:
                    sources.append((True, given[id(leaf)]))
                    continue
                if id(leaf) not in new:
                    new[id(leaf)] = len(out)
                    out.append(leaf)
                sources.append((False, new[id(leaf)]))
            # Which leaf comes from where does not depend on shapes, so that any trace of it will do.
            self._sources[n, diagonal] = sources
            return out

        self.run = jax.jit(run, static_argnums=(1, 2))

    def __call__(self, leaves: list[jax.Array], n: int, diagonal: bool) -> list[jax.Array]:
        """The leaves ``n`` steps later."""
        out = self.run(leaves, n, diagonal)
        return [leaves[i] if kept else out[i] for kept, i in self._sources[n, diagonal]]

"""Benches: figures of an area, measured by `./midair bench AREA`, each with a target. Nothing here flies."""

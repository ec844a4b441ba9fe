"""Controllers and how they are trained: pure functions on the physics of `sim`. No files, clocks, sockets, wires."""

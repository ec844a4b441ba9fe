"""The daemon and its processes, missions, records and the virtual lab."""

__version__ = "0.1.0"

"""What the physics refuses, and in which words. Raised while building or checking, never inside a compiled step.

Exception
└── SimError
    ├── ConfigError   a name, a parameter or a combination that cannot be used
    └── ShapeError    an array whose shape does not fit; the text has the shape
"""

from __future__ import annotations


class SimError(Exception):
    """Anything this package refuses."""


class ConfigError(SimError):
    """A name, parameter or combination that cannot be used; the text says what, the value and the cure."""


class ShapeError(SimError):
    """An array of the wrong shape; the text says which array, its shape and the shape expected."""

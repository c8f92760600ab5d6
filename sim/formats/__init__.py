"""File formats: a `Schedule` or a `Program` in MSCCL's XML, in GOAL and in Chakra's traces.

Each format has a file for writing and one for reading; `docs/formats.md` says what it carries and loses.
"""


class FormatError(ValueError):
    """A file that cannot be read, or data that a format cannot carry; the message says where and why."""

"""What cannot be recorded, in one line."""

from typing import ClassVar

from ringside.real.record.script import places


class Refusal(BaseException):
    """The script does what cannot be recorded; no ``except Exception`` of a script's hides it.

    ``first`` is kept, since a script may catch all exceptions and go on.
    """

    first: "ClassVar[Refusal | None]" = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        Refusal.first = Refusal.first or self


def refusal(what: str, instead: str) -> Refusal:
    """Return the refusal of what the calling line of the script does."""
    where = places.caller()
    return Refusal(f"{where}: {what}; {instead}" if where else f"{what}; {instead}")

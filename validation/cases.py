"""The cases of a validation, chosen by name."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from ringside.topologies.names import one_of


class NamedCase(Protocol):
    """A case of a validation."""

    @property
    def name(self) -> str:
        """The name by which a user chooses it."""
        ...


Case = TypeVar("Case", bound=NamedCase)


def only(cases: Sequence[Case], names: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases of these names, all without names; raise ValueError for an unknown one."""
    known = [case.name for case in cases]
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is not a case of this plan; write {one_of(known, name)}")
    return tuple(case for case in cases if not names or case.name in names)

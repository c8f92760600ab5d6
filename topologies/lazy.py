"""A mapping whose values are made on lookup, such as one of files."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")


class Lazy(Mapping[str, Value]):
    """Values by name; names and values are computed on lookup."""

    def __init__(
        self,
        names: Callable[[], Collection[str]],
        value: Callable[[str], Value],
        has: Callable[[str], bool] | None = None,
    ) -> None:
        """Set up the table; ``has`` tests one name without listing all of them."""
        self._names, self._value, self._has = names, value, has

    def __getitem__(self, name: str) -> Value:
        if name not in self:
            raise KeyError(name)
        return self._value(name)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return self._has(name) if self._has else name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

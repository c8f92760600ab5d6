"""A table whose values are made when they are looked up, such as one of files."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")


class Lazy(Mapping[str, Value]):
    """Values by name; neither the names nor a value is known before it is looked up."""

    def __init__(
        self,
        names: Callable[[], Collection[str]],
        value: Callable[[str], Value],
        has: Callable[[str], bool] | None = None,
    ) -> None:
        """``has`` answers for one name without asking for all of them."""
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

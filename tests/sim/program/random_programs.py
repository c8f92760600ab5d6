"""Random jobs as Python text: correct ones, some with random mutations.

A job is a list of exchanges on which all ranks agree; each rank does its part in order. Then lines of single
ranks are removed, moved or changed. The text is a normal script, which can be kept if its verdict is wrong.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

KINDS = (
    *("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter"),
    *("reduce_scatter", "reduce_scatter_tensor", "all_to_all_single", "barrier"),
)
ROOTS = {"broadcast": "src", "reduce": "dst", "gather": "dst", "scatter": "src"}
SIZES = (0, 48, 48, 480, 48_000, 1_536_000, 4_800_000)
"""Bytes; the largest are more than a socket takes. All are divided by 2, 3 and 4 ranks of four bytes."""


@dataclass(frozen=True)
class RandomProgram:
    """A job; called with a ``dist`` it does what the text says."""

    ranks: int
    text: str

    def __call__(self, dist: Any) -> None:
        """One rank's part."""
        names: dict[str, Any] = {}
        exec(compile(self.text, "random_program.py", "exec"), names)
        names["main"](dist)


def random_program(seed: int, library: str = "gloo") -> RandomProgram:
    """Return the job of a seed, for 2 to 4 ranks; for NCCL without operations that it lacks."""
    return _Writer(random.Random(seed), library).program()


class _Writer:
    """One job on its way: the lines of each rank, before and after they are spoilt."""

    def __init__(self, draw: random.Random, library: str) -> None:
        self._draw = draw
        self._gloo = library == "gloo"
        self._ranks = draw.choice((2, 2, 3, 3, 4))
        self._lines: list[list[str]] = [[] for _ in range(self._ranks)]
        self._open: list[list[str]] = [[] for _ in range(self._ranks)]
        """Names of what each rank has still to wait for."""
        self._names = 0
        self._groups: list[tuple[str, list[int]]] = [("", list(range(self._ranks)))]

    def program(self) -> RandomProgram:
        draw = self._draw
        for number in range(draw.choice((0, 0, 1, 1, 2))):
            members = sorted(draw.sample(range(self._ranks), draw.randint(1, self._ranks)))
            self._groups.append((f"g{number}", members))
        exchanges: list[Callable[[], None]] = [
            *(self._message,) * 4, self._crossing, self._batch, self._gathered, self._collective,
            *(self._collective,) * 3, self._unequal, self._compute, self._wait_for_all,
        ]  # fmt: skip
        for _ in range(draw.randint(1, 7)):
            draw.choice(exchanges)()
        for rank in range(self._ranks):
            self._lines[rank] += [f"{name}.wait()" for name in self._open[rank]]
        made = [
            [f"{name} = dist.new_group({members})" for name, members in self._groups[1:]]
            for _ in range(self._ranks)
        ]
        for _ in range(draw.choice((0, 0, 0, 1, 1, 1, 2, 3))):
            self._spoil(made)
        return RandomProgram(self._ranks, self._text(made))

    def _text(self, made: list[list[str]]) -> str:
        lines = ["def main(dist):"]
        if all(own == made[0] for own in made):
            lines += [f"    {line}" for line in made[0]]
            made = [[]] * self._ranks
        for rank, own in enumerate(self._lines):
            lines.append(f"    {'el' * bool(rank)}if dist.get_rank() == {rank}:")
            lines += [f"        {line}" for line in [*made[rank], *own] or ["pass"]]
        return "\n".join(lines) + "\n"

    # what ranks do together

    def _message(self) -> None:
        draw = self._draw
        group, members = self._of_some(2)
        src, dst = draw.sample(members, 2)
        size, tag = self._size(), draw.choice((0, 0, 0, 1, 2)) if self._gloo else 0
        where = self._where(group, tag)
        source = "" if self._gloo and draw.random() < 0.25 else f", {src}"
        self._call(src, "send", f"{size}, {dst}{where}")
        self._call(dst, "recv", f"{size}{source}{where}")

    def _crossing(self) -> None:
        """Let two ranks exchange messages, each in its own order."""
        group, members = self._of_some(2)
        pair = self._draw.sample(members, 2)
        size = self._size()
        for one, other in (pair, pair[::-1]):
            for word in self._draw.sample(("send", "recv"), 2):
                self._call(one, word, f"{size}, {other}{self._where(group, 0)}", later=0.8)

    def _gathered(self) -> None:
        """Let one rank receive from all others, in any order."""
        group, members = self._of_some(2)
        root = self._draw.choice(members)
        others = [rank for rank in members if rank != root]
        size, where = self._size(), self._where(group, 0)
        named = self._draw.sample(others, self._draw.randint(0, len(others) - 1))
        sources = [f", {rank}" for rank in named]
        sources += ["" if self._gloo else f", {rank}" for rank in others if rank not in named]
        self._draw.shuffle(sources)
        for source in sources:
            self._call(root, "recv", f"{size}{source}{where}")
        for rank in others:
            self._call(rank, "send", f"{size}, {root}{where}")

    def _batch(self) -> None:
        ranks, size = self._ranks, self._size()
        for rank in range(ranks):
            to, source = (rank + 1) % ranks, (rank - 1) % ranks
            parts = [f"dist.P2POp(dist.isend, {size}, {to})", f"dist.P2POp(dist.irecv, {size}, {source})"]
            self._draw.shuffle(parts)
            name = self._name()
            self._lines[rank].append(f"{name} = dist.batch_isend_irecv([{', '.join(parts)}])")
            self._lines[rank].append(f"for work in {name}: work.wait()")

    def _collective(self) -> None:
        draw = self._draw
        group, members = self._of_some(1)
        kind, size = draw.choice((*KINDS, *["monitored_barrier"] * self._gloo)), self._size()
        words = [] if "barrier" in kind else [str(size)]
        if kind in ROOTS:
            words.append(f"{ROOTS[kind]}={draw.choice(members)}")
        if group:
            words.append(f"group={group}")
        later = draw.random() < 0.4 and kind != "monitored_barrier"
        for rank in members:
            self._asked(rank, f"dist.{kind}", ", ".join(words), later=later)

    def _unequal(self) -> None:
        """Add an all-to-all of unequal parts."""
        size = {
            (i, j): self._draw.choice((0, 48, 960)) for i in range(self._ranks) for j in range(self._ranks)
        }
        later = self._draw.random() < 0.4
        for rank in range(self._ranks):
            there = [size[rank, other] for other in range(self._ranks)]
            here = [size[other, rank] for other in range(self._ranks)]
            self._asked(rank, "dist.all_to_all_single", f"{sum(there)}, {here}, {there}", later=later)

    def _compute(self) -> None:
        seconds = self._draw.choice((1e-3, 5e-3, 2e-2))
        self._lines[self._draw.randrange(self._ranks)].append(f"dist.compute({seconds})")

    def _wait_for_all(self) -> None:
        rank = self._draw.randrange(self._ranks)
        self._lines[rank] += [f"{name}.wait()" for name in self._open[rank]]
        self._open[rank] = []

    # how one rank does it

    def _call(self, rank: int, word: str, words: str, later: float = 0.5) -> None:
        if self._draw.random() < later:
            name = self._name()
            self._lines[rank].append(f"{name} = dist.i{word}({words})")
            self._open[rank].append(name)
        else:
            self._lines[rank].append(f"dist.{word}({words})")

    def _asked(self, rank: int, call: str, words: str, *, later: bool) -> None:
        if later:
            name = self._name()
            self._lines[rank].append(f"{name} = {call}({', '.join(filter(None, (words, 'async_op=True')))})")
            self._open[rank].append(name)
        else:
            self._lines[rank].append(f"{call}({words})")

    def _of_some(self, fewest: int) -> tuple[str, list[int]]:
        return self._draw.choice([one for one in self._groups if len(one[1]) >= fewest])

    def _size(self) -> int:
        return self._draw.choice(SIZES)

    def _name(self) -> str:
        self._names += 1
        return f"w{self._names}"

    def _where(self, group: str, tag: int) -> str:
        return (f", group={group}" if group else "") + (f", tag={tag}" if tag else "")

    # what is done to it

    def _spoil(self, made: list[list[str]]) -> None:
        draw = self._draw
        rank = draw.randrange(self._ranks)
        own = self._lines[rank]
        ways: list[Callable[[list[str], int], None]] = [
            self._move, self._move, self._leave_out, self._let_go, self._resize, self._another, self._unnamed,
        ]  # fmt: skip
        if made[rank] and draw.random() < 0.15:
            draw.shuffle(made[rank])
            if not any(f"group={made[rank][-1][:2]}" in line for line in own) and draw.random() < 0.5:
                made[rank].pop()
        elif own:
            draw.choice(ways)(own, draw.randrange(len(own)))

    def _move(self, own: list[str], place: int) -> None:
        """Move a line, but not before the line that creates what it waits for."""
        line = own.pop(place)
        name = re.search(r"\bw\d+\b", line)
        first, last = 0, len(own)
        if name:
            same = [at for at, other in enumerate(own) if re.search(rf"\b{name[0]}\b", other)]
            if same and "=" in line.split("(")[0]:
                last = same[0]
            elif same:
                first = same[-1] + 1
        near = min(max(place + self._draw.choice((-3, -2, -1, 1, 2, 3)), first), last)
        own.insert(near, line)

    def _leave_out(self, own: list[str], place: int) -> None:
        line = own.pop(place)
        if " = " in line:
            name = line.partition(" = ")[0]
            own[:] = [other for other in own if not re.search(rf"\b{name}\b", other)]

    def _let_go(self, own: list[str], place: int) -> None:
        """Drop a wait, or a Work."""
        named = [line for line in own if re.match(r"w\d+ = ", line)]
        if named:
            line = self._draw.choice(named)
            name, _, call = line.partition(" = ")
            own[:] = [other for other in own if other is line or not re.search(rf"\b{name}\b", other)]
            if self._draw.random() < 0.6:
                own[own.index(line)] = call

    def _resize(self, own: list[str], place: int) -> None:
        if not own[place].startswith("dist.compute"):
            own[place] = re.sub(r"\((\d+)", lambda _: f"({self._size()}", own[place], count=1)

    def _unnamed(self, own: list[str], place: int) -> None:
        """Make a receive accept any source, or change a tag, a reduction or a root."""
        line = own[place]
        if self._gloo and "recv(" in line and "P2POp" not in line:
            own[place] = re.sub(r"(recv\(\d+), \d+", r"\1", line)
        elif self._gloo and "send(" in line and "P2POp" not in line:
            own[place] = re.sub(r"\)$", ", tag=3)", re.sub(r", tag=\d", "", line))
        elif "reduce(" in line and "op='" not in line:
            own[place] = re.sub(r"\((\d+)", r"(\1, op='max'", line)
        elif "src=" in line or "dst=" in line:
            own[place] = re.sub(
                r"(src|dst)=\d", lambda at: f"{at[1]}={self._draw.randrange(self._ranks)}", line
            )

    def _another(self, own: list[str], place: int) -> None:
        """Change a collective to another of the same size, or a peer."""
        line = own[place]
        kind = re.search(r"dist\.(\w+)\(", line)
        if kind and kind[1] in KINDS and "[" not in line:
            other = self._draw.choice(KINDS)
            size = re.search(r"\((\d+)", line)
            words = [size[1] if size else "48"] if other != "barrier" else []
            words += re.findall(r"group=\w+|async_op=True", line)
            own[place] = line[: kind.start()] + f"dist.{other}({', '.join(words)})"
        elif "send(" in line and "P2POp" not in line:
            own[place] = re.sub(
                r"(send\(\d+), \d", lambda at: f"{at[1]}, {self._draw.randrange(self._ranks)}", line
            )

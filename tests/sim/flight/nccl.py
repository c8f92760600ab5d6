"""Dumps as ProcessGroupNCCL's Flight Recorder writes them, of jobs that play by NCCL's rules until they hang.

The entries are those of torch/csrc/distributed/c10d/FlightRecorderDetail.hpp and ProcessGroupNCCL.cpp: a
batch has an entry for each part, whose state never changes, and one for its end.
"""

import json
import pickle
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DTYPES = {"Float": 4, "BFloat16": 2}


@dataclass(frozen=True)
class Posted:
    """A call of a rank: parts as (name, input elements, output elements), or messages of a batch."""

    group: str
    parts: tuple[tuple[str, int, int], ...]
    line: int
    dtype: str = "BFloat16"
    is_message: bool = False
    is_batch: bool = False

    @property
    def look(self) -> tuple[Any, ...]:
        """What must match on all members."""
        return self.parts, self.dtype


@dataclass
class NcclJob:
    """Ranks that post calls; ``groups`` are by name the partition of ranks in groups of that name."""

    ranks: int
    groups: dict[str, tuple[tuple[int, ...], ...]]
    posted: dict[int, list[Posted]] = field(default_factory=dict)
    behind: int | None = None
    """A rank whose GPU starts no sum of all ranks any more, in the last step."""

    def members(self, rank: int, group: str) -> tuple[int, ...]:
        """Return the members of a rank's group."""
        return next(part for part in self.groups[group] if rank in part)

    def ended(self) -> dict[int, int]:
        """Return how many calls of each rank end: a call does once it is next on all of its ranks."""
        heads = dict.fromkeys(range(self.ranks), 0)
        while True:
            before = dict(heads)
            for rank in range(self.ranks):
                ranks = self._meeting(rank, heads)
                for one in ranks:
                    heads[one] += 1
            if heads == before:
                return heads

    def _meeting(self, rank: int, heads: dict[int, int]) -> tuple[int, ...]:
        """Return the ranks whose next calls are the same as this one's, if that is all of them."""
        own = self._next(rank, heads)
        if own is None:
            return ()
        members = self.members(rank, own.group)
        if own.is_message:
            peers = {
                int(place)
                for name, *_ in own.parts
                for place in name.split(" ")[1].replace("<-", "->").split("->")
            }
            ranks = tuple(members[place] for place in sorted(peers))
            others = [self._next(one, heads) for one in ranks if one != rank]
            wanted = Counter(_mirrored(part) for part in own.parts)
            parts = Counter(part for one in others if one and one.is_message for part in one.parts)
            return ranks if len(ranks) == 2 and wanted == parts else ()
        nexts = [self._next(one, heads) for one in members]
        alike = all(one is not None and one.group == own.group and one.look == own.look for one in nexts)
        return members if alike else ()

    def _next(self, rank: int, heads: dict[int, int]) -> Posted | None:
        calls = self.posted.get(rank, [])
        if rank == self.behind and heads[rank] == self._last_sum():
            return None
        return calls[heads[rank]] if heads[rank] < len(calls) else None

    def _last_sum(self) -> int:
        return max(at for at, call in enumerate(self.posted[0]) if call.group == "0")

    def dump(
        self, rank: int, ended: int, *, version: str = "2.10", most: int = 2000, timing: bool = True
    ) -> dict[str, Any]:
        """Return the dump of a rank, ``ended`` of whose calls have ended."""
        entries: list[dict[str, Any]] = []
        seen: Counter[tuple[str, str]] = Counter()
        for number, call in enumerate(self.posted[rank]):
            is_started = timing and number == ended and rank != self.behind
            state = "completed" if number < ended else "started" if is_started else "scheduled"
            counter = "p2p" if call.is_message else "collective"
            seen[call.group, counter] += 1
            parts = [*call.parts, ("coalesced", 0, 0)] if call.is_batch else call.parts
            for name, into, out in parts:
                seen[call.group, "op"] += 1
                is_part = call.is_batch and name != "coalesced"
                entries.append(
                    self._entry(
                        call, name, (into, out), len(entries), seen, "scheduled" if is_part else state
                    )
                )
        names = sorted({call.group for call in self.posted[rank]} | {"0"})
        return {
            "version": version,
            "pg_config": {
                name: {"name": name, "desc": _desc(name), "ranks": str(list(self.members(rank, name)))}
                for name in names
            },
            "pg_status": {
                str(at): {"last_enqueued_collective": seen[name, "collective"]}
                for at, name in enumerate(names)
            },
            "entries": entries[-most:],
            "nccl_comm_state": {"0x1f": {"rank": str(rank), "nRanks": str(self.ranks)}},
        }  # fmt: skip

    def _entry(
        self,
        call: Posted,
        name: str,
        sizes: tuple[int, int],
        record: int,
        seen: Counter[tuple[str, str]],
        state: str,
    ) -> dict[str, Any]:
        has_tensors = name != "coalesced"
        return {
            "frames": [
                {"name": "all_reduce", "filename": "/opt/site-packages/torch/distributed/x.py", "line": 9},
                {"name": "main", "filename": "/home/me/train.py", "line": call.line},
            ],
            "record_id": record,
            "pg_id": list(self.groups).index(call.group),
            "process_group": (call.group, _desc(call.group)),
            "collective_seq_id": seen[call.group, "collective"],
            "p2p_seq_id": seen[call.group, "p2p"],
            "op_id": seen[call.group, "op"],
            "profiling_name": f"nccl:{name}",
            "time_created_ns": 1_700_000_000_000_000_000 + record * 1_000_000,
            **({"duration_ms": 0.5} if state == "completed" else {}),
            "input_sizes": [[sizes[0]]] if has_tensors else [],
            "input_dtypes": [call.dtype] if has_tensors else [],
            "output_sizes": [[sizes[1]]] if has_tensors else [],
            "output_dtypes": [call.dtype] if has_tensors else [],
            "state": state,
            "time_discovered_started_ns": None if state == "scheduled" else 1,
            "time_discovered_completed_ns": 2 if state == "completed" else None,
            "retired": state == "completed",
            "timeout_ms": 600_000,
            "is_p2p": call.is_message,
        }  # fmt: skip

    def write(
        self, folder: Path, *, as_json: bool = False, without: tuple[int, ...] = (), **how: Any
    ) -> None:
        """Write the dumps of all ranks but those ``without`` one."""
        for rank, ended in self.ended().items():
            if rank in without:
                continue
            dump = self.dump(rank, ended, **how)
            if as_json:
                for entry in dump["entries"]:
                    del entry["frames"]
            data = json.dumps(dump).encode() if as_json else pickle.dumps(dump, protocol=2)
            (folder / f"nccl_trace_rank_{rank}").write_bytes(data)


def _desc(name: str) -> str:
    return {"0": "default_pg", "1": "mesh_tp", "2": "mesh_dp"}.get(name, "undefined")


def _mirrored(part: tuple[str, int, int]) -> tuple[str, int, int]:
    """Return the other side of a message."""
    kind, places = part[0].split(" ")
    if kind == "send":
        sender, receiver = places.split("->")
        return f"recv {receiver}<-{sender}", *part[1:]
    receiver, sender = places.split("<-")
    return f"send {sender}->{receiver}", *part[1:]

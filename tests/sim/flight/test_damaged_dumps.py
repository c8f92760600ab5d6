"""A thousand mutated dumps: each is read or refused in a line, and runs no code."""

import json
import os
import pickle
import random

import pytest

from ringside.sim.flight.file import FlightError, read_dumps
from ringside.sim.questions.hang_cause import HangCause
from ringside.sim.questions.question import QuestionError
from tests.sim.flight.test_nccl_hangs import job_of

ODD = (
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    "",
    "x",
    "0",
    [],
    {},
    [[]],
    [1],
    {"a": 1},
    "\ud800",
    "[0, x]",
    "[999999999]",
)


class Runs:
    """What a pickle can be made to do: leave a file."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


def dumps_of(seed):
    """Return the dumps of a job that hangs, one rank of which stops early."""
    job = job_of(4, steps=1)
    del job.posted[seed % 4][3:]
    return {rank: job.dump(rank, ended) for rank, ended in job.ended().items()}


def changed(value, chance, file):
    """Return plain values with one part replaced, removed, doubled or made to run code."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {other: one for other, one in value.items() if other != key}
        return {**value, key: changed(value[key], chance, file)}
    if isinstance(value, list | tuple) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        new = changed(value[at], chance, file)
        parts = [*value[:at], new, *([new] if chance.random() < 0.1 else []), *value[at + 1 :]]
        return type(value)(parts)
    return Runs(file) if file and chance.random() < 0.2 else chance.choice(ODD)


def mutated(dump, chance, file):
    """Return the bytes of a dump, of which values or bytes are not what they were."""
    protocol = chance.choice([2, 4, 5])
    match chance.randrange(4):
        case 0:
            return pickle.dumps(changed(dump, chance, file), protocol)
        case 1:
            return json.dumps(changed(dump, chance, None), default=str).encode(errors="surrogatepass")
        case 2:
            data = bytearray(pickle.dumps(dump, protocol))
        case _:
            data = bytearray(json.dumps(dump).encode())
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data))
        data[at : at + chance.choice([0, 1, 1, 8])] = chance.randbytes(chance.choice([0, 1, 1, 4]))
    return bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])


@pytest.mark.parametrize("block", range(10))
def test_a_mutated_dump_is_read_or_refused_in_a_line(tmp_path, block):
    file = tmp_path / "ran"
    dumps = dumps_of(block)
    for rank, dump in dumps.items():
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(dump, 2))
    lines = []
    for seed in range(100):
        chance = random.Random(f"{block} {seed}")
        rank = chance.randrange(4)
        (tmp_path / f"rank_{rank}").write_bytes(mutated(dumps[rank], chance, file))
        try:
            answer = HangCause(
                file=tmp_path / "rank_0", more=[tmp_path / f"rank_{one}" for one in range(1, 4)]
            ).ask()
            json.dumps(answer.content)
            answer.headline.encode(errors="replace")
        except (FlightError, QuestionError) as error:
            lines.append(str(error))
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(dumps[rank], 2))
        assert not file.exists(), seed
    assert lines
    assert not [line for line in lines if "\n" in line]


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_that_would_run_code_is_refused_by_name(tmp_path, protocol):
    dump = {**dumps_of(0)[0], "version": Runs(tmp_path / "ran")}
    (tmp_path / "rank_0").write_bytes(pickle.dumps(dump, protocol))
    with pytest.raises(FlightError, match=r"imports posix\.system"):
        read_dumps([tmp_path / "rank_0"])
    assert not (tmp_path / "ran").exists()

"""A script's mesh makes the same groups as torch, in the same order."""

import json
from typing import Any

import pytest

from ringside.sim.program.operations import NewGroup, Program
from ringside.sim.program.record.distributed import record
from tests.processes import python

# recorded with torch 2.13: init_device_mesh("cpu", (2, 2, 2)) on eight ranks, and _flatten of two dimensions
TORCH = [[0, 4], [1, 5], [2, 6], [3, 7], [0, 2], [1, 3], [4, 6], [5, 7], [0, 1], [2, 3], [4, 5], [6, 7]]
FLAT = [[0, 1, 2, 3], [4, 5, 6, 7]]


def _cube(dist: Any) -> Any:
    return dist.init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))


def _made(program: Program, rank: int) -> list[list[int]]:
    actions = [operation.action for operation in program.operations(rank)]
    return [list(action.group.ranks) for action in actions if isinstance(action, NewGroup)]


def test_every_rank_makes_every_group_as_torch_does() -> None:
    program = record(_cube, 8)
    assert [_made(program, rank) for rank in range(8)] == [TORCH] * 8


def test_flattened_dimensions_are_groups_more() -> None:
    def flatten(dist: Any) -> None:
        flat = _cube(dist)["dp", "tp"]._flatten()
        assert flat.shape == (4,)
        assert flat.get_local_rank() == dist.get_rank() % 4
        assert dist.get_process_group_ranks(flat.get_group("dp_tp")) == FLAT[dist.get_rank() // 4]

    program = record(flatten, 8)
    assert [_made(program, rank) for rank in range(8)] == [TORCH + FLAT] * 8


def test_some_dimensions_have_the_groups_that_are_there() -> None:
    def part(dist: Any) -> None:
        mesh = _cube(dist)
        assert mesh["tp", "pp"].get_group("pp") is mesh.get_group("pp")
        assert mesh["tp"].size() == 2
        assert mesh["dp", "tp"].get_coordinate() == mesh.get_coordinate()[1:]
        with pytest.raises(ValueError, match="'cp' is not a dimension of the mesh"):
            mesh["cp"]

    assert _made(record(part, 8), 0) == TORCH


ASK = """
import json
import torch
from torch.distributed import device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

made = []
new_group = device_mesh.new_group

def remembered(ranks, **words):
    made.append(list(ranks))
    return new_group(ranks=ranks, **words)

device_mesh.new_group = remembered
torch.distributed.init_process_group("fake", rank=5, world_size=8, store=FakeStore())
mesh = device_mesh.init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
mesh["dp", "tp"]._flatten()
print(json.dumps(made))
"""


def test_the_installed_torch_makes_the_same_groups() -> None:
    pytest.importorskip("torch")
    # in a process of its own: torch has one default group, which another test may have made
    assert json.loads(python("-c", ASK).stdout) == TORCH + FLAT

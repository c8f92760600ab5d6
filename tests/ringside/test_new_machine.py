"""A new machine is one file, given by name or added to the catalogue, and works with every command."""

import json
import shutil
from pathlib import Path

import pytest

from ringside import topologies
from ringside.sim.libraries.nccl import SYSTEMS
from ringside.topologies import TopologyError, machine, make

PUBLISHED = Path(__file__).parents[2] / "validation/published/oke_a100_n2_r16.json"
FILES = Path(machine.__file__).parent / "machines"
QUESTIONS = (
    "topo {}:2",
    "simulate all_reduce --cluster {}:2 --library nccl --size 64M --calibration none",
    "pick all_reduce --cluster {} --nodes 1,2 -b 1M -e 16M -f 4 --calibration none",
    "train --model resnet50 --cluster {}:2 --calibration none",
    "explain rows.json --cluster {}:2 --calibration family:dgx-a100",
)


@pytest.fixture
def catalogue(tmp_path, monkeypatch):
    """Add a folder of machines to the catalogue."""
    monkeypatch.setattr(machine, "FOLDERS", [FILES, tmp_path])
    return tmp_path


def answer(json_of, question, name):
    rows = PUBLISHED.read_text(encoding="utf-8").replace("dgx-a100", name.removesuffix(".yaml"))
    Path("rows.json").write_text(rows, encoding="utf-8")
    found = json.dumps(json_of(question.format(name)))
    return found.replace(name, "dgx-a100").replace("new-a100", "dgx-a100")


@pytest.mark.parametrize("name", ["new-a100", "new-a100.yaml"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_copy_of_a_machines_file_has_its_answers(json_of, catalogue, monkeypatch, question, name):
    monkeypatch.chdir(catalogue)
    shutil.copy(FILES / "dgx-a100.yaml", "new-a100.yaml")
    assert answer(json_of, question, name) == answer(json_of, question, "dgx-a100")


def test_a_machine_of_the_catalogue_is_a_function_and_known_to_nccl(catalogue):
    shutil.copy(FILES / "mn5-h100.yaml", catalogue / "new-h100.yaml")
    assert topologies.new_h100(3, nic=1e9).number_of_nodes() == topologies.mn5_h100(3).number_of_nodes()
    assert SYSTEMS["new-h100"].nic == SYSTEMS["mn5-h100"].nic
    with pytest.raises(AttributeError, match="no attribute 'older_h100'"):
        topologies.older_h100  # noqa: B018


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus: 8", "describes no machine; write for example machine: nvlink_switch"),
        ("machine: nvlink_switch\nwhat: 8", "what: 8: input should be a valid string"),
        ("machine: nvlink_switch\nlatency: 1us", "latency: is not known"),
        ("machine: nvlink_switch\ngpus: 8\ngpus: 8", "'gpus' is given twice"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_its_path(catalogue, text, message):
    (catalogue / "new.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(TopologyError, match=message) as refused:
        make("new")
    assert str(catalogue / "new.yaml") in str(refused.value)

"""The references list exactly the keys of files and answers."""

import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from ringside.sim.algorithms import ALGORITHMS
from ringside.sim.calibration import Calibration, Fit
from ringside.sim.libraries.mpi.measured import StoredMpi
from ringside.sim.libraries.nccl.stored import Stored
from ringside.sim.record import Record
from ringside.sim.training.ddp.step import DdpRecord
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.decoder_file import file_of
from ringside.sim.workload.file import _File as WorkloadFile
from ringside.studies.study import Study
from ringside.topologies.file import _File as DrawnCluster
from tests.pages.console import KEYS, ROOT, ask, blocks, desk

REFERENCE = ROOT / "docs/reference"
YAML = (REFERENCE / "yaml.md").read_text(encoding="utf-8")
JSON = (REFERENCE / "json.md").read_text(encoding="utf-8")


def named(page: str, before: str) -> list[str]:
    """Return the keys in the first column of the first table after a text."""
    table = re.search(rf"{re.escape(before)}.*?\n\n(?P<table>\|.*?)(?:\n\n|\Z)", page, re.S)
    assert table, before
    rows = table["table"].splitlines()[2:]
    return [key for row in rows for key in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def keys(schema: dict[str, Any]) -> set[str]:
    """Return all keys of a JSON schema: ``[]`` is any entry of a list, ``*`` any name."""

    def below(part: dict[str, Any], path: str) -> Iterator[str]:
        if "$ref" in part:
            part = schema["$defs"][part["$ref"].rpartition("/")[2]]
        for one in part.get("anyOf", ()):
            yield from below(one, path)
        for name, inner in part.get("properties", {}).items():
            yield f"{path}{name}"
            yield from below(inner, f"{path}{name}.")
        if isinstance(part.get("additionalProperties"), dict):
            yield from below(part["additionalProperties"], f"{path}*.")
        if isinstance(part.get("items"), dict):
            yield from below(part["items"], f"{path[:-1]}[].")

    return set(below(schema, ""))


def of(kind: type, prefix: str = "") -> set[str]:
    return {f"{prefix}{key}" for key in keys(TypeAdapter(kind).json_schema(by_alias=True))}


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("a drawn cluster", of(DrawnCluster)),
        ("a workload", of(WorkloadFile)),
        ("a decoder", of(file_of(Decoder))),
        ("a study", of(Study)),
        (
            "a calibration",
            {"calibration"}
            | {field.name for field in fields(Calibration)}
            | of(Fit, "fits[].")
            | of(Stored, "nccl.")
            | of(StoredMpi, "mpi."),
        ),
    ],
)
def test_every_key_of_a_yaml_file_is_there(what, expected):
    found = named(YAML, f"<!-- keys of {what} -->")
    assert sorted(found) == sorted(expected)


def answered(value: Any, path: str = "") -> Iterator[str]:
    """Return the keys of an answer in the same notation."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}{name}"
            yield from answered(inner, f"{path}{name}.")
    elif isinstance(value, list):
        for inner in value:
            yield from answered(inner, f"{path[:-1]}[].")


SECTIONS = [
    (block.commands, JSON.partition(block.text)[2])
    for block in blocks(REFERENCE / "json.md")
    if block.mark == KEYS
]


@pytest.mark.parametrize(("commands", "table"), SECTIONS, ids=[words[0][0] for words, _ in SECTIONS])
def test_every_key_of_an_answer_is_there(commands, table):
    found = set()
    with desk():
        for line, _ in commands:
            out, failed = ask(line)
            assert not failed, out
            content = json.loads(out)
            assert content.pop("schema").endswith("/1")
            found |= set(answered(content))
    told = named(table, "")
    patterns = [re.compile(re.escape(key).replace(r"\*", ".+")) for key in told]
    whole = {key for key in found if not any(other.startswith((f"{key}.", f"{key}[].")) for other in found)}
    assert {key for key in whole if not any(pattern.fullmatch(key) for pattern in patterns)} == set()
    idle = [
        key for key, pattern in zip(told, patterns, strict=True) if not any(map(pattern.fullmatch, found))
    ]
    assert idle == []


def test_every_schema_is_there():
    printed = {
        name.replace("train-search", "train --search").replace(
            "goodput_trainings", "goodput: what is published"
        )
        for file in Path(ROOT, "ringside").rglob("*.py")
        for name in re.findall(r'print_json\(\s*"([\w-]+)"', file.read_text(encoding="utf-8"))
    }
    headed = set(re.findall(r"^## (.*)$", JSON, re.M))
    part = {"train-search", "goodput_trainings", "channels", "schedule", "scorecard_training"}
    assert printed <= headed | part | set(named(JSON, "## Others"))


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("collectives", {"record", *of(Record), "algbw_GBps", "busbw_GBps"}),
        ("ddp", {field.name for field in fields(DdpRecord)}),
    ],
)
def test_every_key_of_a_record_is_there(what, expected):
    assert sorted(named(JSON, f"<!-- fields: {what} -->")) == sorted(expected)


def test_every_key_of_a_run_is_there():
    from ringside.real.training.record import TrainingRecord
    from ringside.sim.compute.grids import RatesFile
    from ringside.sim.goodput.elastic import ElasticRun

    assert set(named(JSON, "<!-- fields: training -->")) == {field.name for field in fields(TrainingRecord)}
    assert set(named(JSON, "<!-- fields: compute -->")) >= {field.name for field in fields(RatesFile)}
    derived = {"goodput", "redone"}
    assert set(named(JSON, "<!-- fields: elastic -->")) == {f.name for f in fields(ElasticRun)} | derived


def test_the_page_of_algorithms_counts_what_a_schedule_sends():
    spec = importlib.util.spec_from_file_location("written", REFERENCE / "written.py")
    assert spec
    assert spec.loader
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    lines = list(written._algorithm("ring"))
    assert lines[1] == "## ring"
    assert "`all_reduce` | 14 | 126 | 1.75 S | 1.97 S" in lines  # 2(n-1) messages, 2(n-1)/n of the size
    assert {line.split("`")[1] for line in lines if line.startswith("`")} == set(ALGORITHMS["ring"])

"""Machines of the catalogue: each is a file in the format of `machine_file`, with its facts and sources."""

import inspect
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ringside.topologies import strict_yaml
from ringside.topologies.chassis import Processes
from ringside.topologies.graph import Topology, TopologyError
from ringside.topologies.hardware import GPUS
from ringside.topologies.machine_file import KEY, build_of, latencies_of, parse
from ringside.topologies.making import arguments_of
from ringside.topologies.units import BytesPerSecond

FOLDERS = [Path(__file__).parent / "machines"]
"""Folders that are searched for machines."""

_ALIASES = re.compile(r"^aliases: (\[.*\])$", re.M)

_FIGURES = (BytesPerSecond, BytesPerSecond | None, Processes)


class Machine:
    """A maker of ``nodes`` machines from one file; its settings are the rates in the file and the latencies.

    ``gpu`` is the name of its GPUs, None without any; ``in_logs`` a pattern of their name in logs; ``hosts``
    the number of operating systems that share its NVLinks; ``inside`` the machine with identical nodes, by
    default its own name; ``network`` the kind of its network; ``aliases`` its other names.
    """

    def __init__(self, name: str, content: Mapping[str, Any]) -> None:
        facts, values = parse(content, name)
        self._build = build_of(values)
        self._arguments = arguments_of(name, self._build, {**values, "name": name})
        nodes, *others = inspect.signature(self._build).parameters.values()
        known = {one.name: one for one in others}
        rates = [key for key in values if key in known and known[key].annotation in _FIGURES]
        settings = [known[key] for key in (*rates, *latencies_of(self._arguments))]
        self.__signature__ = inspect.Signature(
            [one.replace(default=self._arguments[one.name]) for one in (nodes, *settings)]
        )
        self.__doc__ = f"{facts.what}\n\n{facts.sources}"
        self.gpu: str | None = self._arguments.get("gpu")
        self.in_logs = facts.gpu_in_logs or (GPUS[self.gpu].in_logs if self.gpu else None)
        self.hosts = int((self._arguments.get("nccl") or {}).get("hosts") or 1)
        self.inside = facts.inside or name
        self.network = facts.network
        self.aliases = facts.aliases

    def __call__(self, *args: Any, **values: Any) -> Topology:
        """Return the topology of ``nodes`` machines, with the file's figures replaced by those given."""
        given = self.__signature__.bind(*args, **values).arguments
        return self._build(**self._arguments | given)


def machines() -> Mapping[str, Path]:
    """Return the files of all machines of the catalogue by name."""
    return _files(tuple(FOLDERS))


def machine(name: str) -> Machine:
    """Return the catalogue's machine of that name."""
    return _machine(name, machines()[name])


def called(name: str) -> str:
    """Return the catalogue's name of a machine by another name, such as p5.48xlarge; else the name itself."""
    return name if name in machines() else _aliases(tuple(FOLDERS)).get(name.lower(), name)


def nvidia_machines() -> list[str]:
    """Return the machines with NVIDIA's GPUs, on which NCCL runs."""
    return [name for name in machines() if _is_nvidia(name)]


def nvidia_machine(name: str, nodes: int) -> "Topology | None":
    """Return ``nodes`` of the catalogue's machines of that name; None if they lack NVIDIA's GPUs."""
    return machine(name)(nodes) if _is_nvidia(name) else None


def _is_nvidia(name: str) -> bool:
    gpu = machine(name).gpu if name in machines() else None
    return gpu is not None and GPUS[gpu].maker == "nvidia"


def box_of(name: str) -> list[str]:
    """Return the machines with identical nodes, from any vendor: first the one that the others name.

    The list is empty for a machine that is not in the catalogue.
    """
    if name not in machines():
        return []
    first = machine(name).inside
    return [first, *(mate for mate in machines() if mate != first and machine(mate).inside == first)]


@cache
def _files(folders: tuple[Path, ...]) -> dict[str, Path]:
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


@cache
def _aliases(folders: tuple[Path, ...]) -> dict[str, str]:
    """Return the machine of each alias, in small letters; files are not parsed, for they are many."""
    lines = {
        name: _ALIASES.search(path.read_text(encoding="utf-8")) for name, path in _files(folders).items()
    }
    return {
        str(alias).lower(): name for name, line in lines.items() if line for alias in yaml.safe_load(line[1])
    }


@cache
def _machine(name: str, path: Path) -> Machine:
    try:
        content = strict_yaml.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or KEY not in content:
            raise TopologyError(f"describes no machine; write for example {KEY}: nvlink_switch")
        return Machine(name, content)
    except (TopologyError, yaml.YAMLError) as error:
        raise TopologyError(f"{path}: {error}") from None

"""What to write in place of a line that the command line does not accept, by what newcomers write."""

import re
from collections.abc import Sequence

from ringside.sim.training.strategies import STRATEGIES

_PLOT = "simulate all_reduce --cluster dgx-h100:2 -b 1M -e 1G --plot times.svg"

COMMANDS = {
    "predict": "simulate", "estimate": "simulate", "collective": "simulate", "busbw": "simulate",
    "run": "measure", "bench": "measure", "benchmark": "measure", "training": "train", "step": "train",
    "search": "train --search", "layout": "train --search", "cost": "train --search",
    "plan": "train --search",
    "hang": "program", "deadlock": "program", "prove": "program", "profile": "trace", "log": "explain",
    "why": "explain", "clusters": "topo", "list": "topo", "topology": "topo", "algorithms": "collectives",
    "plot": _PLOT, "draw": _PLOT,
    "what-if": "whatif", "help": "-h", "fit": "calibrate", "validation": "validate", "health": "expect",
}  # fmt: skip
"""The command for each word that is none."""

OPTIONS = {
    "--bytes": "--size", "--nbytes": "--size", "--message-size": "--size", "--gpu": "--device",
    "--machine": "--cluster", "--topology": "--cluster", "--backend": "--library",
}  # fmt: skip
"""The option for each one that newcomers write, and that no command has."""

RANKS = ("--gpus", "-n", "-np", "--nproc", "--num-gpus", "--world-size", "--nranks", "--ngpus", "--num-ranks")
FIGURES = ("nic", "nvlink", "pcie", "bandwidth", "latency", "oversubscription", "radix", "fabric", "socket")
"""Settings of clusters that newcomers write as options."""

MISSING = {
    "cluster": "--cluster NAME:COUNT, for example --cluster dgx-h100:2; ringside topo lists the names",
    "collective": "a collective first, for example all_reduce",
    "files": "the files, for example nccl-tests.log",
    "output": "-o and the name of a file to write",
    "what": "a collective or a model first, for example all_reduce or llama3-8b",
    "command": "the script, for example ringside record -g 8 train.py",
}
"""What to write for an option or argument without which a question cannot be asked."""

_SIZE_UNIT = re.compile(r"[kmgt]i?b?", re.IGNORECASE)
_CLUSTER = re.compile(r"[a-z][\w.-]*(:\d+)?", re.IGNORECASE)


def for_command(word: str) -> str | None:
    """Return what to write in place of a command that there is not."""
    return f"ringside {COMMANDS[word]}" if word in COMMANDS else None


def for_option(option: str, value: str, known: Sequence[str]) -> str | None:
    """Return what to write in place of an option that a command with the ``known`` ones does not have."""
    name = option.lstrip("-")
    if name in FIGURES:
        changed = f"{name}={value or '2x'}"
        if "--try" in known:
            return f"--try {changed}"
        if value.endswith("x") or not value:
            return f"--set {name}=VALUE; or ask ringside whatif with --try {changed}"
        return f"--set {changed}"
    if OPTIONS.get(option) in known:
        return f"{OPTIONS[option]} {value}".rstrip()
    if name in STRATEGIES and "--strategy" in known:
        return f"--strategy {name}"
    if name in known:
        return f"{value or name.upper()} alone, without {option}"
    if option in RANKS and "--ranks" in known:
        return f"-g {value or 'N'}, the number of ranks"
    if option == "--nodes" and "--cluster" in known:
        return f"--cluster NAME:{value or 'COUNT'}"
    return None


def for_rest(rest: Sequence[str], known: Sequence[str]) -> str | None:
    """Return what to write in place of arguments that a command with the ``known`` options does not take."""
    first = rest[0]
    if _SIZE_UNIT.fullmatch(first):
        return f"a size without a blank, such as 64{first[0].upper()}"
    if "=" in first and "--try" in known:
        return f"--try {first}"
    if "=" in first and "--set" in known:
        return f"--set {first}"
    if first.isdecimal():
        return f"a count after the cluster's name, as NAME:{first}"
    if first.endswith((".json", ".txt")) and "--json" in known:
        return f"--json > {first}"
    if "--model" in known and "--collective" not in known:
        return f"--model {first}"
    if "--cluster" in known and _CLUSTER.fullmatch(first):
        return f"--cluster {first}"
    return None

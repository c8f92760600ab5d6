"""The command line. A command reads its words, asks a room for the work and prints what it says.

Each stands in `ringside.commands` under its name; only the one that is called is imported, for help
must not wait for numpy. What goes wrong ends in one message and an exit code, not in a traceback.
"""

import os
import signal
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from types import FrameType

import typer

from ringside.errors import exit_code, message

COMMANDS = {
    "topo": "List the named clusters, or describe, draw or write one.",
    "simulate": "Predict how long a collective takes.",
    "collectives": "List which library answers which collective by which algorithm, and what is proved.",
    "pick": "Say which algorithm wins at every size and node count, and by how much.",
    "train": "Predict a training step: what communication it hides and what stays exposed.",
    "measure": "Measure a collective, or steps of DistributedDataParallel (ddp), for real.",
    "calibrate": "Fit a cluster's parameters to measurements.",
    "compare": "Lay predictions beside measurements: records and nccl-tests, or steps of measure ddp.",
    "explain": "Say why a log's bus bandwidth is low: which part departs from its family, and what to try.",
    "pairs": "Say which node or link is slow, from a measurement between every two nodes.",
    "scorecard": "Judge NCCL's calibrated times on published rows that no fit has seen, beside simple rules.",
    "program": "Prove that a job of collectives and messages ends, or say who waits; simulate or run it.",
    "trace": "Tell collectives, skew and transfer of a profiled job; replay it on another cluster.",
    "validate": "Predict from ping-pong, then measure, on emulated networks; exit 1 past a tolerance.",
    "demo": "Measure, calibrate, compare and draw on this machine, end to end, in under three minutes.",
}


def main() -> None:
    """Run the command line; an error ends as `ringside.errors` says.

    With RINGSIDE_DEBUG=1 in the environment its traceback is shown before its message.
    """
    signal.signal(signal.SIGINT, _interrupted)
    try:
        try:
            app()
        finally:
            if sys.stdout:
                sys.stdout.flush()  # while what goes wrong with it can still be said
    except BrokenPipeError:
        # whoever read our output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("RINGSIDE_DEBUG") == "1":
            traceback.print_exception(error)
        _complain(message(error))
        sys.exit(exit_code(error))


def app() -> None:
    """Run the command that the command line names."""
    commands = typer.Typer(
        help="Predict how long collective communication and distributed training take, and prove it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    for name, sentence in COMMANDS.items():
        called = name in sys.argv[1:2]
        command = import_module(f"ringside.commands.{name}").command if called else _not_called
        commands.command(name, help=sentence)(command)
    commands()


def _not_called() -> None:
    """Stands for a command of which only the name is told."""


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Leave by the way that cleans up; the command-line library would swallow a KeyboardInterrupt."""
    print("ringside: interrupted; what was finished before is kept", file=sys.stderr)
    sys.exit(128 + number)


def _complain(text: str) -> None:
    with suppress(OSError):  # where even this cannot be written nobody can be told
        for line in text.splitlines():
            print(f"ringside: {line}", file=sys.stderr, flush=True)

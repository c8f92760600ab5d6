"""The command line. A command reads its words, asks a room for the work and prints what it says.

Each has a folder of `ringside.commands`; only the one that is called is imported, for help
must not wait for numpy. What goes wrong ends in one message and an exit code, not in a traceback.
"""

import os
import signal
import sys
import traceback
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ringside.door import door, plain
from ringside.errors import exit_code, message

_Refused: Any = typer.BadParameter.__base__
"""What wrong words are refused with; typer has a click of its own, which it does not show."""

COMMANDS = {
    "topo": "List the named clusters, or describe, draw or write one.",
    "simulate": "Predict how long a collective takes.",
    "collectives": "List which library answers which collective by which algorithm, and what is proved.",
    "pick": "Say which algorithm wins at every size and node count, and by how much.",
    "train": "Predict a training step: what communication it hides and what stays exposed.",
    "whatif": "Ask what another network, more nodes or another algorithm would change, and what then limits.",
    "goodput": "Say what failures, checkpoints and restarts leave of a long job's time.",
    "measure": "Measure a collective for real.",
    "measure ddp": "Measure steps of DistributedDataParallel, of a model or of layers that sleep.",
    "measure train": "Measure steps of FSDP2, pipelines, tensor, context and expert parallelism.",
    "measure elastic": "Kill ranks of a real job; lay its goodput beside the predicted.",
    "calibrate": "Fit a cluster's parameters to measurements.",
    "compare": "Lay predictions beside measurements: records and nccl-tests, or measured training steps.",
    "explain": "Say why a log's bus bandwidth is low: which part departs from its family, and what to try.",
    "pairs": "Say which node or link is slow, from a measurement between every two nodes.",
    "scorecard": "Judge NCCL's times by published rows that set nothing of them, beside simple rules.",
    "scorecard training": "Judge training steps by published ones, one of each series known.",
    "sweep": "Ask one command line at many points, in parallel; once more, and it goes on where it was.",
    "program": "Prove that a job of collectives and messages ends, or say who waits; simulate or run it.",
    "trace": "Tell collectives, skew and transfer of a profiled job; replay it on another cluster.",
    "validate": "Predict from ping-pong, then measure, on emulated networks; exit 1 past a tolerance.",
    "validate ddp": "Predict, then measure, steps of DistributedDataParallel on emulated networks.",
    "validate training": "Predict, then measure, steps of FSDP and pipelines on emulated networks.",
    "validate disturbances": "Predict, then measure, disturbed steps on emulated networks, in quantiles.",
    "demo": "Measure, calibrate, compare and draw on this machine, end to end, in under three minutes.",
}
"""What each command says of itself; ``measure ddp`` is one with words of its own."""


def main() -> None:
    """Run the command line; an error ends as `ringside.errors` says.

    With RINGSIDE_DEBUG=1 in the environment its traceback is shown before its message.
    """
    for number in _ENDING:
        signal.signal(number, _interrupt)
    with door():
        _run()


def _run() -> None:
    try:
        try:
            app()
        finally:
            if sys.stdout:
                sys.stdout.flush()  # while what goes wrong with it can still be said
    except _Interrupted as end:
        number = end.args[0]
        _complain(f"{_ENDING[number]}; {_kept()}")
        sys.exit(128 + number)
    except BrokenPipeError:
        _stop_writing()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # of which the command-line library makes exit 1
            _stop_writing()
        raise
    except Exception as error:
        if os.environ.get("RINGSIDE_DEBUG") == "1":
            traceback.print_exception(error)
        _complain(message(error))
        sys.exit(exit_code(error))


def app() -> None:
    """Run the command that the command line names."""
    commands(_called(_words()))(prog_name="ringside")  # however it was started: completion asks by this name


def commands(called: Collection[str]) -> typer.Typer:
    """All commands, of which those that are called are whole and of the others only the name is told."""
    found = typer.Typer(
        cls=_Commands,
        help="Predict how long collective communication and distributed training take, and prove it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich cuts words to fit its frames
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    found.callback()(_common)
    for name, sentence in COMMANDS.items():
        command = command_of(name) if name in called else _not_called
        found.command(name, cls=_Command, help=sentence)(command)
    return found


def command_of(name: str) -> Any:
    """The function behind a command: ``command`` in its folder, or ``ddp`` beside it."""
    first, _, second = name.partition(" ")
    return getattr(import_module(f"ringside.commands.{first}.command"), second or "command")


class _Command(TyperCommand):
    """A command that knows the words of its relatives: ``measure`` those of ``measure ddp``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words; raise ValueError for one that is a relative's."""
        try:
            return super().parse_args(ctx, args)
        except _Refused as error:
            option, name = getattr(error, "option_name", None), str(self.name)
            if not hasattr(error, "possibilities"):  # which has an option that it does not know
                raise
            family = [one for one in COMMANDS if one.split()[0] == name.split()[0] and one != name]
            owners = [f"ringside {one}" for one in family if option in _options_of(one)]
            if not owners:
                raise
            raise ValueError(
                f"{option} is no option of ringside {name}, but of {' and '.join(owners)}; leave it out, "
                "or write that"
            ) from None


def _options_of(name: str) -> set[str]:
    command: Any = typer.main.get_command(commands({name}))
    return {option for param in command.commands[name].params for option in param.opts}


class _Commands(TyperGroup):
    """Commands, whose names may have two words; all of them can be asked to say more."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        verbose = [param for param in self.params if param.name == "verbose"]
        for command in self.commands.values():
            command.params += verbose

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command, and what is left of the words."""
        two = " ".join(args[:2])
        return super().resolve_command(ctx, [two, *args[2:]] if two in self.commands else args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Every command with its whole sentence, where click would cut it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.commands.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """What the first word may be; a shell completes one word at a time."""
        return [found for found in super().shell_complete(ctx, incomplete) if " " not in found.value]


def _words() -> list[str]:
    """The words of the command line, or those that a shell wants completed."""
    asked = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS")
    completing = "_RINGSIDE_COMPLETE" in os.environ and asked
    return asked.split()[1:] if completing and asked else sys.argv[1:]


def _called(words: Sequence[str]) -> set[str]:
    """The commands that the words may name: before them stand options of all commands alone."""
    names = [word for word in words if not word.startswith("-")]
    return {" ".join(names[:1]), " ".join(names[:2])}


def _say_version(asked: bool) -> None:
    if asked:
        import ringside

        print(f"ringside {ringside.__version__}")
        raise typer.Exit


def _say_more(context: typer.Context, times: int) -> None:
    if times:
        from ringside.telling import told

        context.with_resource(told(times))


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say which release it is.")
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "-v",
            "--verbose",
            count=True,
            callback=_say_more,
            expose_value=False,
            show_default=False,
            metavar="",
            help="Say on stderr what is decided, and why; twice: more of it.",
        ),
    ] = 0,
) -> None:
    """What may be asked of every command, or of none."""


def _not_called() -> None:
    """Stands for a command of which only the name is told."""


def _stop_writing() -> None:
    """End well: whoever read our output has enough of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


_ENDING = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
"""Signals of a terminal, and of who ends jobs; Slurm and systemd send the second."""


class _Interrupted(BaseException):
    """Such a signal, by its number, leaves by the way that cleans up.

    Nobody takes it for his own: neither the command-line library, which swallows KeyboardInterrupt, nor those
    who run a user's code and tell of its SystemExit.
    """


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(
        signal.SIGTERM, lambda *_: None
    )  # one sent to a whole job may come twice: what cleans up goes on
    raise _Interrupted(number)


def _kept() -> str:
    """Which files were written before, all of which are whole."""
    disk = sys.modules.get("ringside.topologies.disk")  # which who wrote nothing may not have imported
    files: list[Path] = disk.written() if disk else []
    if not files:
        return "nothing was written"
    folders = sorted({file.parent for file in files})
    if len(files) > 3:
        return f"{len(files)} files are written and whole, in {', '.join(map(str, folders))}"
    return f"written, and whole: {', '.join(map(str, files))}"


def _complain(text: str) -> None:
    with suppress(OSError):  # where even this cannot be written nobody can be told
        for line in plain(text).split("\n"):
            print(f"ringside: {line}", file=sys.stderr, flush=True)

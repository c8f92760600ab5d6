"""The command line: parse options, ask a question, print the answer.

Each command has a folder in `ringside.commands`; only the called one is imported, because help must not wait
for numpy. An error ends in one message and an exit code, not in a traceback.
"""

import os
import re
import signal
import sys
import traceback
from collections import Counter
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
"""Errors of invalid options; typer bundles its own click, which it does not export."""

COMMANDS = {
    "topo": "List the named clusters, or describe, draw or write one.",
    "simulate": "Predict how long a collective takes.",
    "collectives": "List which library supports which collective by which algorithm, and which are proved.",
    "experts": "Predict dispatch and combine of experts' tokens by each library, and which is the fastest.",
    "pick": "Show which algorithm wins at every size and node count, and by how much.",
    "train": "Predict a training step: what communication it hides and what stays exposed.",
    "whatif": "Predict the effect of another network, more nodes or another algorithm, and the new limit.",
    "goodput": "Predict a long job's goodput after failures, checkpoints and restarts.",
    "measure": "Measure a collective for real.",
    "measure ddp": "Measure steps of DistributedDataParallel, with a model or with sleeping layers.",
    "measure train": "Measure steps of FSDP2, pipelines, tensor, context and expert parallelism.",
    "measure compute": "Measure rates of products, attention and memory of this CPU or GPU.",
    "measure elastic": "Kill ranks of a real job; compare its goodput with the prediction.",
    "record": "Record an unmodified training script as a job, without a GPU.",
    "calibrate": "Fit a cluster's parameters to measurements.",
    "compare": "Compare predictions with measurements: records and nccl-tests, or measured training steps.",
    "expect": "Show the bus bandwidth that a healthy cluster reaches; exit 1 for a log below it.",
    "explain": "Explain why a log's bus bandwidth is low, compared with similar machines, and what to try.",
    "pairs": "Find the slow nodes and links, from measurements between every two nodes.",
    "scorecard": "Score predicted collectives or steps on held-out published rows, beside simple rules.",
    "sweep": "Ask one question at many points, in parallel; run it again to continue an interrupted sweep.",
    "program": "Prove that a job of collectives and messages ends, or show who waits; simulate or run it.",
    "trace": "Show collectives, skew and transfer of a profiled job; replay it on another cluster.",
    "validate": "Predict from ping-pong, then measure, on emulated networks; exit 1 past a tolerance.",
    "validate ddp": "Predict, then measure, steps of DistributedDataParallel on emulated networks.",
    "validate memory": "Predict, then measure, peaks of memory of small training jobs.",
    "validate training": "Predict, then measure, steps of FSDP and pipelines on emulated networks.",
    "validate recordings": "Record scripts, predict their steps, then really run them while operators sleep.",
    "validate disturbances": "Predict, then measure, disturbed steps on emulated networks, in quantiles.",
    "serve": "Explore collectives, layouts and recorded jobs on a page, on this machine alone.",
    "demo": "Measure, calibrate, compare and draw on this machine, end to end, in under three minutes.",
}
"""Each command's help sentence; ``measure ddp`` is a command with options of its own."""

_UNEXPECTED = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.+)\)$")
"""The message for arguments that a command does not take, which has no class of its own."""

_WITH_A_COMMAND_LINE = ("record",)
"""Commands whose arguments are another command line: options after the first argument are not ours."""


def main() -> None:
    """Run the command line; errors end as `ringside.errors` defines.

    With RINGSIDE_DEBUG=1 in the environment an error's traceback is shown before its message.
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
                sys.stdout.flush()  # while its errors can still be reported
    except _Interrupted as end:
        number = end.args[0]
        _complain(f"{_ENDING[number]}; {_kept()}")
        sys.exit(128 + number)
    except BrokenPipeError:
        _stop_writing()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # the command-line library exits with 1 for it
            _stop_writing()
        raise
    except Exception as error:
        if os.environ.get("RINGSIDE_DEBUG") == "1":
            traceback.print_exception(error)
        _complain(message(error))
        sys.exit(exit_code(error))


def app() -> None:
    """Run the command that the command line names."""
    commands(_called(_arguments()))(
        prog_name="ringside"
    )  # for every way of starting it: completion uses this name


def commands(called: Collection[str]) -> typer.Typer:
    """Return the typer app; commands that are not called are named without their options."""
    typer_app = typer.Typer(
        cls=_Commands,
        help="Predict how long collective communication and distributed training take, and prove it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich truncates text to fit its frames
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    typer_app.callback()(_common)
    for name, sentence in COMMANDS.items():
        command = command_of(name) if name in called else _not_called
        settings = {"allow_interspersed_args": name not in _WITH_A_COMMAND_LINE}
        typer_app.command(name, cls=_Command, help=sentence, context_settings=settings)(command)
    return typer_app


def command_of(name: str) -> Any:
    """Return the function of a command: that of ``command.py`` in its folder, or of ``ddp.py`` beside it."""
    first, _, second = name.partition(" ")
    return import_module(f"ringside.commands.{first}.{second or 'command'}").command


class _Command(TyperCommand):
    """A command that says what to write: for options of related commands, and for newcomers' mistakes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; raise ValueError for mistakes that have a hint, and for repeated lists."""
        given = [*args]  # which parsing consumes
        try:
            rest = super().parse_args(ctx, args)
        except _Refused as error:
            if advice := self._advice(error, given):
                raise ValueError(advice) from None
            raise
        self._refuse_repeated(ctx, given)
        return rest

    def _refuse_repeated(self, ctx: Any, given: list[str]) -> None:
        """Raise ValueError if an option that takes a list is given twice: only the last would count."""
        for param, times in Counter(self.make_parser(ctx).parse_args(given)[2]).items():
            is_list = str(param.metavar).endswith((",...", "NAMES"))
            if times > 1 and is_list and not param.multiple:
                option = max(param.opts, key=len)
                raise ValueError(
                    f"{option} is given {times} times; write it once, with commas between its values"
                )

    def _advice(self, error: Any, given: Sequence[str]) -> str | None:
        """Return what is wrong and what to write; None without a hint."""
        from ringside import hints

        name = str(self.name)
        known = [option for param in self.params for option in (*param.opts, *param.secondary_opts)]
        if hasattr(error, "possibilities"):  # only an error about an unknown option has it
            option = str(error.option_name)
            family = [one for one in COMMANDS if one.split()[0] == name.split()[0] and one != name]
            owners = [f"ringside {one}" for one in family if option in _options_of(one)]
            if owners:
                return (
                    f"{option} is not an option of ringside {name}, but of {' and '.join(owners)}; remove "
                    "it, or use that command"
                )
            after = [*given, ""][given.index(option) + 1 :] if option in given else [""]
            value = "" if after[0].startswith("-") else after[0]
            hint = hints.for_option(option, value, known)
            return hint and f"{option} is not an option of ringside {name}; write {hint}"
        if isinstance(error, typer.BadParameter) and error.param is not None and hasattr(error, "param_type"):
            hint = hints.MISSING.get(str(error.param.name))
            return hint and f"ringside {name} lacks an argument; write {hint}"
        if rest := _UNEXPECTED.match(error.message):
            hint = hints.for_rest(rest[1].split(), known)
            return hint and f"{rest[1]}: ringside {name} takes no such argument; write {hint}"
        return None


def _options_of(name: str) -> set[str]:
    command: Any = typer.main.get_command(commands({name}))
    return {option for param in command.commands[name].params for option in param.opts}


class _Commands(TyperGroup):
    """Commands, whose names may have two words; all of them accept the common options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        verbose = [param for param in self.params if param.name == "verbose"]
        for command in self.commands.values():
            command.params += verbose

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command, and the remaining arguments."""
        from ringside import hints

        two = " ".join(args[:2])
        if args[0] not in self.commands and (hint := hints.for_command(args[0])):
            raise ValueError(f"there is no command {args[0]}; write {hint}")
        return super().resolve_command(ctx, [two, *args[2:]] if two in self.commands else args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command with its whole sentence, which click would truncate."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.commands.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the first word; a shell completes one word at a time."""
        return [item for item in super().shell_complete(ctx, incomplete) if " " not in item.value]


def _arguments() -> list[str]:
    """Return the arguments of the command line, or those that a shell completes."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS")
    completing = "_RINGSIDE_COMPLETE" in os.environ and line
    return line.split()[1:] if completing and line else sys.argv[1:]


def _called(arguments: Sequence[str]) -> set[str]:
    """Return the commands that the arguments may name: only common options precede them."""
    names = [one for one in arguments if not one.startswith("-")]
    return {" ".join(names[:1]), " ".join(names[:2])}


def _say_version(is_given: bool) -> None:
    if is_given:
        import ringside

        print(f"ringside {ringside.__version__}")
        raise typer.Exit


def _say_more(context: typer.Context, times: int) -> None:
    if times:
        from ringside.verbose import log_to_stderr

        context.with_resource(log_to_stderr(times))


def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
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
            help="Print all notes, and log decisions to stderr; twice: more detail.",
        ),
    ] = 0,
) -> None:
    """Accept the options that work with every command and without one."""


def _not_called() -> None:
    """Replace a command that is not called."""


def _stop_writing() -> None:
    """End cleanly: the reader of the output has closed it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


_ENDING = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
"""Signals of a terminal, and of job schedulers; Slurm and systemd send the second."""


class _Interrupted(BaseException):
    """Such a signal, by its number, raised so that cleanup runs.

    No other code catches it: neither the command-line library, which swallows KeyboardInterrupt, nor code
    that runs a user's script and reports its SystemExit.
    """


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(
        signal.SIGTERM, lambda *_: None
    )  # a signal to a whole job may arrive twice: cleanup continues
    raise _Interrupted(number)


def _kept() -> str:
    """Describe the files written so far; all are complete."""
    disk = sys.modules.get("ringside.topologies.disk")  # not imported if nothing was written
    files: list[Path] = disk.written() if disk else []
    if not files:
        return "nothing was written"
    folders = sorted({file.parent for file in files})
    if len(files) > 3:
        return f"{len(files)} complete files are in {', '.join(map(str, folders))}"
    return f"complete files: {', '.join(map(str, files))}"


def _complain(text: str) -> None:
    with suppress(OSError):  # if even this cannot be written, no message is possible
        for line in plain(text).split("\n"):
            print(f"ringside: {line}", file=sys.stderr, flush=True)

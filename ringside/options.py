"""Options of commands: those of a question's fields, and those for output, each described once.

Of a question an option is made for each field, with its help, default and name.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, get_args

import typer

from ringside import console
from ringside.sim.effort import MAX_MEMORY, MAX_TRANSFERS, forced
from ringside.sim.questions.answer import PICTURES
from ringside.sim.questions.question import PARSERS, Question, option_of, options_of, types_of
from ringside.topologies.units import format_size

Command = Callable[..., None]


def asks(question: type[Question], *others: type[Question]) -> Callable[[Command], Command]:
    """Replace a command's first parameter, ``question``, by an option for each field of a question.

    A parameter named as a field of one of the ``others`` becomes that field's option.
    """
    borrowed = _options(*others)

    def decorate(run: Command) -> Command:
        def ask(values: dict[str, Any], **given: Any) -> None:
            run(question(**values), **given)

        return _command(run, _options(question), ask, borrowed)

    return decorate


def asks_one_of(*questions: type[Question]) -> Callable[[Command], Command]:
    """Replace a command's first parameter by an option for each field of several questions.

    The parameter becomes the given options by field, from which the command makes one of the questions.
    """

    def decorate(run: Command) -> Command:
        return _command(run, _options(*questions, is_needed=False), run)

    return decorate


def _options(*questions: type[Question], is_needed: bool = True) -> dict[str, inspect.Parameter]:
    """Return the command's parameter for each field; without ``is_needed`` all are optional."""
    return {
        one.name: _parameter(one, types_of(question)[one.name], is_needed=is_needed)
        for question in questions
        for one in options_of(question)
    }


def _command(
    run: Command,
    options: Mapping[str, inspect.Parameter],
    ask: Command,
    borrowed: Mapping[str, inspect.Parameter] = MappingProxyType({}),
) -> Command:
    """Return a command with the options beside ``run``'s own, which calls ``ask`` with the options given."""
    _, *own = inspect.signature(run, eval_str=True).parameters.values()
    rest = [borrowed.get(one.name, one.replace(kind=inspect.Parameter.KEYWORD_ONLY)) for one in own]

    def command(**given: Any) -> None:
        values = {name: given.pop(name) for name in options.keys() & given.keys()}
        ask({name: value for name, value in values.items() if value is not None}, **given)

    parameters = sorted([*options.values(), *rest], key=_place)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = run.__doc__
    return command


def _parameter(one: "Field[Any]", hint: Any, *, is_needed: bool) -> inspect.Parameter:
    """Return the command's parameter for a field; an option that is not given is None."""
    how = option_of(one)
    settings: dict[str, Any] = {"help": how.help, "metavar": how.metavar}
    if how.minimum is not None and not how.parse:
        settings["min"] = how.minimum
    if how.maximum is not None:
        settings["max"] = how.maximum
    if how.default_text:
        settings["show_default"] = how.default_text
    is_required = is_needed and one.default is MISSING and one.default_factory is MISSING
    default = inspect.Parameter.empty if is_required else None
    if one.default is not MISSING and not how.repeats:
        default = one.default
    annotation: Any
    kind: Any = list[str] if how.repeats else str if how.parse else _plain_type(hint)
    if how.completions or one.name in NAMES:
        settings["autocompletion"] = lambda incomplete: _completed(one.name, how.completions, incomplete)
    if how.is_argument:
        annotation = Annotated[kind if is_required else kind | None, typer.Argument(**settings)]
    else:
        flags = how.flags or ((f"--{one.name.replace('_', '-')}",) if kind is bool else ())
        annotation = Annotated[kind if is_required else kind | None, typer.Option(*flags, **settings)]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain_type(hint: Any) -> Any:
    """Return the type that the command line parses: a field's own, or text if it has several."""
    kinds = (
        [kind for kind in get_args(hint) if kind is not NoneType] if isinstance(hint, UnionType) else [hint]
    )
    return kinds[0] if len(kinds) == 1 else str


def _place(one: inspect.Parameter) -> int:
    """Sort arguments first, then options that must be given."""
    how = getattr(one.annotation, "__metadata__", (None,))[0]
    is_required = isinstance(how, typer.models.OptionInfo) and one.default is inspect.Parameter.empty
    return 0 if isinstance(how, typer.models.ArgumentInfo) else 1 if is_required else 2


def _completed(field: str, names: Sequence[str], incomplete: str) -> list[str]:
    """Return the names that continue what is written, of a list its last one."""
    before, comma, last = incomplete.rpartition(",")
    module, _, name = NAMES.get(field, "").partition(":")
    known: Iterable[str] = names or getattr(import_module(module), name)
    return [f"{before}{comma}{one}" for one in known if one.startswith(last)]


NAMES = {
    "cluster": "ringside.topologies.catalogue:MAKERS", "collective": "ringside.sim.collective:KINDS",
    "algorithm": "ringside.sim.algorithms:ALGORITHMS",
    "model": "ringside.sim.workload.models:NAMES", "library": "ringside.sim.libraries.find:LIBRARIES",
}  # fmt: skip
"""The names that a shell completes for a field, as ``module:name``: they are imported only then."""

PICTURES.append("ringside.pictures.answers:draw")
PARSERS["anchor"] = "ringside.validation.nccl.anchor:read_anchor"


FORMATS = (".svg", ".png", ".pdf")
"""Endings of pictures' names."""


def _lift_limits(context: typer.Context, is_given: bool) -> bool:
    """Apply ``--force``: simulations of any size while the command runs."""
    if is_given:
        context.with_resource(forced())
    return is_given


def check_picture(path: Path | None) -> Path | None:
    """Refuse a name that is not a picture's, before any work is done."""
    if path is not None and path.suffix not in FORMATS:
        raise ValueError(f"{path}: not a picture format; write a name that ends in {', '.join(FORMATS)}")
    return path


def _check_page(path: Path | None) -> Path | None:
    """Refuse a name that is not a page's, before any work is done."""
    if path is not None and path.suffix != ".html":
        raise ValueError(f"{path}: not the name of a page; write a name that ends in .html")
    return path


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
All = Annotated[
    bool,
    typer.Option("--all", callback=console.widen, help="Print every column, even wider than 80 characters."),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=check_picture, help="Draw to an .svg, .png or .pdf file."),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        callback=_check_page,
        help="Write an interactive page to one self-contained .html file.",
    ),
]
Animate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        callback=_check_page,
        help="Write a page on which chunks or micro-batches move: one self-contained .html file.",
    ),
]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace.")]
Export = Annotated[
    Path | None,
    typer.Option(metavar="FILE|DIR", help="Export to another tool's format, by the file's extension."),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        callback=_lift_limits,
        help=f"Simulate without limits (usually {MAX_TRANSFERS:,} transfers, {format_size(MAX_MEMORY)}).",
    ),
]
ForceStart = Annotated[
    bool, typer.Option("--force", help="Start without limits (usually 16 ranks per core, all memory).")
]
Steps = Annotated[Path, typer.Option("-o", metavar="FILE.json", help="Write the steps to this file.")]

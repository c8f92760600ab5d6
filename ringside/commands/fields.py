"""Make a command from a question: an option for each field, with its help, default and name."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field
from types import NoneType, UnionType
from typing import Annotated, Any, get_args

import typer

import ringside.parsers  # noqa: F401  (registers them)
from ringside.sim.questions.question import Question, option_of, options_of, types_of

Command = Callable[..., None]


def asks(question: type[Question], *others: type[Question]) -> Callable[[Command], Command]:
    """Replace a command's first parameter, ``question``, by an option for each field of a question.

    A parameter named as a field of one of the ``others`` becomes that field's option.
    """
    types = types_of(question)
    borrowed = {
        one.name: _parameter(one, types_of(other)[one.name]) for other in others for one in options_of(other)
    }

    def decorate(run: Command) -> Command:
        _, *own = inspect.signature(run, eval_str=True).parameters.values()
        rest = [borrowed.get(one.name, one.replace(kind=inspect.Parameter.KEYWORD_ONLY)) for one in own]
        options = [_parameter(one, types[one.name]) for one in options_of(question)]
        names = {one.name for one in options}

        def command(**given: Any) -> None:
            values = {name: given.pop(name) for name in names & given.keys()}
            run(question(**{name: value for name, value in values.items() if value is not None}), **given)

        parameters = sorted([*options, *rest], key=_place)
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        command.__doc__ = run.__doc__
        return command

    return decorate


def _parameter(one: "Field[Any]", hint: Any) -> inspect.Parameter:
    """Return the command's parameter for a field; None is an option that is not given."""
    how = option_of(one)
    settings: dict[str, Any] = {"help": how.help, "metavar": how.metavar}
    if how.minimum is not None and not how.parse:
        settings["min"] = how.minimum
    if how.maximum is not None:
        settings["max"] = how.maximum
    if how.default_text:
        settings["show_default"] = how.default_text
    is_required = one.default is MISSING and one.default_factory is MISSING
    default = inspect.Parameter.empty if is_required else None
    if one.default is not MISSING and not how.repeats:
        default = one.default
    annotation: Any
    kind: Any = list[str] if how.repeats else str if how.parse else _plain_type(hint)
    if how.is_argument:
        annotation = Annotated[kind, typer.Argument(**settings)]
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

"""The command line of a launch script in bash; nothing of it is executed.

Assignments, arrays, what is appended to them, ``${X:-default}``, integer arithmetic and ``if`` with plain
comparisons are followed; variables that the script does not set are empty, as they are in an empty
environment. A variable that a loop, a function, a command or any other condition sets is not known, and its
use is refused.
"""

import ast
import re
from collections.abc import Callable, Iterator
from operator import add, floordiv, mod, mul, sub

_UNKNOWN = "\0"
"""What stands for a value that only running the script would tell, around the reason."""

_ASSIGNED = re.compile(
    r"(?:export\s+|declare\s+(?:-\w+\s+)*|local\s+|readonly\s+)*([A-Za-z_]\w*)(\+?)=(.*)", re.S
)
_BRACES = re.compile(r"\$\{(\w+)(?:\[[@*]\])?(?::?([-=+])([^{}]*))?\}")
_ARITHMETIC = re.compile(r"\$\(\(([^$()]*(?:\([^$()]*\)[^$()]*)*)\)\)")
_COMMAND = re.compile(r"\$\(([^$()]*)\)|`([^`]*)`")
_PLAIN = re.compile(r"\$(\w+|@|\*|#|\?)")
_PROGRAM = re.compile(r"(\S+\.py)\s+(.*)", re.S)
_OPENING, _CLOSING = ("for", "while", "until", "case", "select", "function"), ("done", "esac")
_ARITHMETICS: dict[type, Callable[[int, int], int]] = {
    ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: floordiv, ast.FloorDiv: floordiv, ast.Mod: mod,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "=": str.__eq__, "==": str.__eq__, "!=": str.__ne__,
    "-eq": lambda a, b: int(a) == int(b), "-ne": lambda a, b: int(a) != int(b),
    "-gt": lambda a, b: int(a) > int(b), "-lt": lambda a, b: int(a) < int(b),
    "-ge": lambda a, b: int(a) >= int(b), "-le": lambda a, b: int(a) <= int(b),
}  # fmt: skip


def command_line(text: str) -> tuple[str, list[str]]:
    """Return the program of the first command with ``--num-layers``, and its arguments."""
    variables: dict[str, str] = {}
    for line, statement, is_certain in _followed(_statements(text), variables):
        assigned = _ASSIGNED.fullmatch(statement)
        if assigned:
            name, more, value = assigned.groups()
            value = expanded(_inner(value), variables)
            if not is_certain:
                value = f"{_UNKNOWN}{name}, which line {line} sets if a condition holds{_UNKNOWN}"
            variables[name] = f"{variables.get(name, '')} {value}" if more else value
        match = _PROGRAM.search(re.split(r"\s(?:\d?>|\||&)", expanded(statement, variables), maxsplit=1)[0])
        if match and "--num-layers" in match[2].split() and is_certain:
            return match[1], _known(match[2]).split()
    raise ValueError(
        "no command with --num-layers; write a script that starts pretrain_gpt.py with its arguments"
    )


def expanded(text: str, variables: dict[str, str]) -> str:
    """Return a text with its variables, arithmetic and unknown commands replaced, innermost first."""
    before = ""
    while before != text:
        before = text
        text = _BRACES.sub(lambda match: _value(variables.get(match[1], ""), match[2], match[3]), text)
        text = _PLAIN.sub(lambda match: variables.get(match[1], ""), text)
        text = _ARITHMETIC.sub(lambda match: _arithmetic(match[1], variables), text)
        text = _COMMAND.sub(lambda match: f"{_UNKNOWN}the command {match[1] or match[2]}{_UNKNOWN}", text)
    return text


def _value(value: str, how: str | None, other: str) -> str:
    return (other if value else "") if how == "+" else value or other or ""


def _arithmetic(text: str, variables: dict[str, str]) -> str:
    """Return the result of whole numbers and of variables, which have no dollar sign there."""

    def result(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETICS:
            return _ARITHMETICS[type(node.op)](result(node.left), result(node.right))
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return int(variables.get(node.id) or 0)
        raise ValueError

    try:
        return str(result(ast.parse(text.strip(), mode="eval").body))
    except (ValueError, SyntaxError, ZeroDivisionError):
        return f"{_UNKNOWN}the arithmetic {text}{_UNKNOWN}"


def _known(text: str) -> str:
    """Return a text without anything unknown; raise ValueError for it."""
    if _UNKNOWN in text:
        reason = text.split(_UNKNOWN)[1]
        raise ValueError(f"the arguments use {reason}; nothing of a script is run, write the arguments out")
    return text


def _inner(value: str) -> str:
    return value.strip()[1:-1] if value.strip().startswith("(") else value


def _followed(
    statements: Iterator[tuple[int, str]], variables: dict[str, str]
) -> Iterator[tuple[int, str, bool]]:
    """Yield statements that run, and those that may, which are not certain; conditions are followed."""
    branches: list[
        list[bool | None]
    ] = []  # of each open if: whether this branch runs, whether one before did
    loops = 0
    for line, statement in statements:
        word, _, rest = statement.partition(" ")
        if word in ("then", "do", "{", "(") and rest:
            word, _, rest = (statement := rest).partition(" ")
        if word in ("if", "elif", "else"):
            holds = True if word == "else" else _holds(expanded(rest, variables))
            if word == "if":
                branches.append([holds, holds])
            elif branches:
                before = branches[-1][1]
                branches[-1] = [False if before else None if before is None else holds, before or holds]
        elif word == "fi":
            branches[-1:] = []
        elif word in _OPENING or statement.endswith("() {"):
            loops += 1
        elif word in _CLOSING or (word == "}" and loops):
            loops -= 1
        elif all(holds is not False for holds, _ in branches):
            yield line, statement, not loops and all(holds for holds, _ in branches)


def _holds(condition: str) -> bool | None:
    """Return whether a condition holds; None if running the script alone would tell."""
    result: bool | None = None
    for number, part in enumerate(re.split(r"(\|\||&&)", condition)):
        if number == 0:
            result = _compared(part)
        elif number % 2:
            decisive = part == "||"
        else:
            known = {result, _compared(part)}
            result = decisive if decisive in known else None if None in known else not decisive
    return result


def _compared(part: str) -> bool | None:
    """Return the outcome of ``[[ A == B ]]`` or ``[ -z A ]``; None for any other condition."""
    test = re.fullmatch(r"\s*\[\[?\s(.*?)\]\]?\s*", part, re.S)
    if test is None or _UNKNOWN in part:
        return None
    if is_empty := re.fullmatch(r"\s*-([zn])\s+(.*)", test[1], re.S):
        return bool(is_empty[2].strip()) is (is_empty[1] == "n")
    sides = re.fullmatch(r"(.*?)\s*(==|!=|=|-eq|-ne|-gt|-lt|-ge|-le)\s+(.*)", test[1], re.S)
    try:
        return _COMPARISONS[sides[2]](sides[1].strip(), sides[3].strip()) if sides else None
    except ValueError:
        return None


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each statement with its line: quotes and comments are gone, what parentheses hold is one."""
    line, begun, depth, quote, out = 1, 1, 0, "", ""
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        line += letter == "\n"
        if letter == "\\" and quote != "'" and position < len(text):
            line += text[position] == "\n"
            out += "" if text[position] == "\n" else text[position]
            position += 1
        elif quote:
            quote = "" if letter == quote else quote
            out += "" if not quote else letter
        elif letter in "\"'":
            quote = letter
        elif letter == "#" and (not out or out[-1] in " \t\n;("):
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif letter in "\n;" and not depth:
            if out.strip():
                yield begun, " ".join(out.split())
            out, begun = "", line
        else:
            depth = max(0, depth + (letter == "(") - (letter == ")"))
            out += " " if letter == "\n" else letter
    if out.strip():
        yield begun, " ".join(out.split())

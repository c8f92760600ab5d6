"""The commands on the pages, and which of them tests run.

- A ```` ```console ```` block shows commands with their output, which is compared with the real one.
- A ```` ```sh ```` block behind ``<!-- commands -->`` is run; its output is not shown.
- One behind ``<!-- not run: WHY -->`` is not run; a test counts them.
- A block whose title names a file is that file for the commands below it.

Commands of a page run in order, in a folder of the page's own. After a change of an answer ``python -m
tests.pages.console`` rewrites pages and their pictures, and the commit says why it changed.
"""

import contextlib
import io
import re
import runpy
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]+?) -->\n)?"
    r'```(?P<language>\w*)(?: title="(?P<title>\S+)")?\n(?P<text>.*?)^```$',
    re.S | re.M,
)
_COMMAND = re.compile(
    r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:ringside|python3?|pytest|pip|dask|mpirun|torchrun|docker) \S", re.M
)
_LANGUAGES = ("", "sh", "console", "text")
"""Those in which commands are shown; another one's block that looks like commands is a program."""

KEYS = "keys"
"""What stands before commands whose answers as JSON have the keys of the table below: `test_references`."""

NOT_RUN = "not run: "


class Block(NamedTuple):
    """A fenced block: the comment before it, its language, the file that it is, what stands there."""

    mark: str
    language: str
    title: str
    text: str

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Each command with its output on the page."""
        if self.language != "console":
            lines = self.text.replace("\\\n", "").splitlines()
            return [(re.sub(r" +# .*", "", line), "") for line in lines if line.strip()]
        parts = re.split(r"^\$ ", self.text, flags=re.M)
        assert not parts[0].strip(), f"a block begins with {parts[0]!r}, which is no command"
        return [(line, printed) for line, _, printed in (part.partition("\n") for part in parts[1:])]

    @property
    def shows_commands(self) -> bool:
        """Whether it shows commands of any program."""
        return self.language in _LANGUAGES and bool(_COMMAND.search(self.text))

    @property
    def is_run(self) -> bool:
        """Whether a test runs it."""
        if self.mark.startswith(NOT_RUN):
            return False
        return self.language == "console" or self.mark in ("commands", KEYS)


def misunderstood(line: str) -> str:
    """Return the error for unknown options or commands in a line, or an empty text.

    Commands of other programs, and the values of options, are not checked.
    """
    import typer

    from ringside.cli import COMMANDS, commands

    words = shlex.split(line.partition(" > ")[0])
    if "ringside" not in words or words[0] == "docker":
        return ""
    words = words[words.index("ringside") + 1 :]
    two = " ".join(words[:2])
    name, words = (two, words[2:]) if two in COMMANDS else (words[0], words[1:])
    if name not in COMMANDS:
        return f"{name!r} is no command"
    command = typer.main.get_command(commands([name])).commands[name]
    try:
        command.make_parser(typer.Context(command, **command.context_settings)).parse_args(args=words)
    except typer.TyperException as error:
        return str(error)
    return ""


def _block(found: re.Match[str]) -> Block:
    return Block(*(found[name] or "" for name in Block._fields))


def blocks(page: Path) -> list[Block]:
    """Return all fenced blocks of a page, in order."""
    return [_block(found) for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


PAGES = tuple(page for page in DOCS if any(block.is_run for block in blocks(page)))
"""Those of which some block is run."""


def ask(line: str) -> tuple[str, bool]:
    """Run a command in this process; return its output, error included, and whether it failed."""
    from ringside.__main__ import main

    line, _, target = line.partition(" > ")
    program, *words = shlex.split(line)
    assert program in ("ringside", "python"), f"{line!r} is no command of Ringside, nor a page's own script"
    run = main if program == "ringside" else partial(runpy.run_path, words[0], run_name="__main__")
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", [program, *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            run()
            failed = False
        except SystemExit as end:
            failed = bool(end.code)
    if target:
        Path(target).write_text(out.getvalue(), encoding="utf-8")
        out = io.StringIO()
    shown = out.getvalue() + (err.getvalue() if failed else "")
    return "".join(f"{text.rstrip()}\n" for text in shown.splitlines()), failed


@contextlib.contextmanager
def desk() -> Iterator[Path]:
    """Work in a temporary folder with the repository's examples and measurements."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        for part in ("examples", "tests", "validation"):
            Path(part).symlink_to(ROOT / part)
        yield Path(name)


def rewrite(page: Path) -> None:
    """Rewrite the page with the current output of its commands, and its pictures."""

    def anew(found: re.Match[str]) -> str:
        block = _block(found)
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        if not block.is_run:
            return found[0]
        printed = "".join(f"$ {line}\n{ask(line)[0]}" for line, _ in block.commands)
        return f"```console\n{printed}```" if block.language == "console" else found[0]

    text = page.read_text(encoding="utf-8")
    with desk() as folder:
        page.write_text(_BLOCK.sub(anew, text), encoding="utf-8")
        for name in re.findall(r"\]\(((?:\w+/)*\w+\.(?:png|html))\)", text):
            if (folder / Path(name).name).exists():
                (page.parent / name).parent.mkdir(exist_ok=True)
                shutil.copy(folder / Path(name).name, page.parent / name)


if __name__ == "__main__":
    for each in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        rewrite(each)

"""``ringside program train.py``: whether an unmodified training script's step ends, on all ranks."""

import ast
from dataclasses import replace
from pathlib import Path

from ringside import console
from ringside.sim.formats.program_files import of_recorded
from ringside.sim.questions.program_verdict import JobFile, ProgramProof, prove_job

MOST_APART = 16
"""Ranks up to which each is recorded: one that calls something else is often the one that hangs."""


def is_training_script(path: Path) -> bool:
    """Return whether a Python file runs by itself: it imports torch, or asks whether it is ``__main__``."""
    if path.suffix != ".py" or not path.is_file():
        return False
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False
    return any(_is_of_script(node) for node in ast.walk(tree))


def _is_of_script(node: ast.AST) -> bool:
    match node:
        case ast.Import():
            return any(one.name.partition(".")[0] == "torch" for one in node.names)
        case ast.ImportFrom():
            return (node.module or "").partition(".")[0] == "torch" and not node.level
        case ast.Compare(left=ast.Name(id="__name__"), comparators=[ast.Constant(value="__main__")]):
            return True
    return False


def proof(path: Path, arguments: tuple[str, ...], ranks: int | None, library: str | None) -> ProgramProof:
    """Record the script and prove its step."""
    from ringside.real.questions.recording import ScriptRecording

    question = ScriptRecording(command=(str(path), *arguments), with_source=True)
    if ranks is not None:
        question = replace(question, ranks=ranks)
    if question.ranks <= MOST_APART:
        question = replace(question, every_rank=True)
    with console.progress("recording", None) as bar:
        job = question.ask(on_rank=lambda rank: bar.done(f"rank {rank}")).job
    read = of_recorded(job)
    return prove_job(
        JobFile(path, job.ranks, read),
        library or read.library,
        question.inputs(),
        eager=False,
        tell=lambda _: None,
    )

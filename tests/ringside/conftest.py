import json
import shlex
import sys

import pytest

from ringside.verbose import NOTED
from tests.ringside.wrapping import unwrapped


@pytest.fixture
def ringside(on_screen):
    """Run the command line in an empty folder: (exit code, stdout with all notes and whole lines, stderr)."""

    def run(*argv):
        token = NOTED.set(True)  # as with -v, without its log
        try:
            code, out, err = on_screen(*argv)
        finally:
            NOTED.reset(token)
        return code, unwrapped(out), err

    return run


def words_of(argv):
    """Return the words of a command line that may be given as one text."""
    return shlex.split(argv[0]) if len(argv) == 1 else argv


@pytest.fixture
def json_of(ringside):
    """Return the answer of a command line in JSON."""

    def run(*argv):
        code, out, err = ringside(*words_of(argv), "--json")
        assert code == 0, err
        return json.loads(out)

    return run


@pytest.fixture
def printed(ringside):
    """Return what a command line prints that succeeds."""

    def run(*argv):
        code, out, err = ringside(*words_of(argv))
        assert code == 0, err
        return out

    return run


@pytest.fixture
def silently(ringside):
    """Return what a command line prints that succeeds without a word on stderr."""

    def run(*argv):
        code, out, err = ringside(*words_of(argv))
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def refused(ringside):
    """Return the complaint about a command line that is refused and prints nothing else."""

    def run(*argv):
        code, out, err = ringside(*words_of(argv))
        assert (code, out) == (2, ""), err
        assert "Traceback" not in err
        return err

    return run


@pytest.fixture
def on_screen(monkeypatch, capsys, tmp_path):
    """Run the command line in an empty folder: (exit code, stdout as people see it, stderr)."""
    from ringside.__main__ import main

    monkeypatch.chdir(tmp_path)

    def run(*argv):
        monkeypatch.setattr(sys, "argv", ["ringside", *map(str, argv)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        out = capsys.readouterr()
        return code, out.out, out.err

    return run

import sys

import pytest


@pytest.fixture
def ringside(monkeypatch, capsys, tmp_path):
    """Run the command line as a user would, in an empty folder: (exit code, stdout, stderr)."""
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

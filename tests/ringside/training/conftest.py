import sys

import pytest
import typer

from ringside.verbose import NOTED


@pytest.fixture
def train(monkeypatch, capsys, tmp_path):
    """Run ``train`` in an empty folder and return all that it prints; errors are raised as they are."""
    from ringside.commands.train.command import command

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        monkeypatch.setattr(sys, "argv", ["train", *map(str, argv)])
        token = NOTED.set(True)
        try:
            with pytest.raises(SystemExit) as end:
                app()
        finally:
            NOTED.reset(token)
        out = capsys.readouterr()
        assert not end.value.code, out.err
        return out.out

    return run

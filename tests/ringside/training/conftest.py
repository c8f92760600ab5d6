import sys

import pytest
import typer


@pytest.fixture
def train(monkeypatch, capsys, tmp_path):
    """Run ``train`` in an empty folder and return what it prints; errors are raised as they are."""
    from ringside.commands.train.command import command

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)
    monkeypatch.chdir(tmp_path)

    def run(*argv):
        monkeypatch.setattr(sys, "argv", ["train", *map(str, argv)])
        with pytest.raises(SystemExit) as end:
            app()
        out = capsys.readouterr()
        assert not end.value.code, out.err
        return out.out

    return run

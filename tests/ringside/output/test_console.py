"""Progress output."""

import time

import pytest
from rich.progress import Progress

from ringside import console
from ringside.options import Force
from ringside.sim import effort
from ringside.topologies.units import format_size


def test_long_work_is_never_silent_in_a_pipe(capsys, monkeypatch):
    monkeypatch.setattr(console, "PERIOD_S", 0.05)
    with console.simulating("simulating", 3) as bar:
        time.sleep(0.12)
        bar.done("simulated 8 B")
        effort.show(10_000, 50_000)
        time.sleep(0.12)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "ringside: simulating"
    assert lines[-1] == "ringside: simulated 8 B: 10,000 of 50,000 transfers"
    time.sleep(0.12)
    assert capsys.readouterr().err == ""


def test_one_long_simulation_has_a_bar_until_it_is_over():
    bar = Progress(disable=True)
    ticker = console.Ticker(bar, bar.add_task("simulating", total=2), "simulating")
    ticker.show(10_000, 50_000)
    ticker.show(20_000, 50_000)
    assert [(one.completed, one.total) for one in bar.tasks] == [(0, 2), (20_000, 50_000)]
    ticker.done("simulated 8 B")
    assert [(one.completed, one.total) for one in bar.tasks] == [(1, 2)]


def test_what_takes_long_is_announced_once(capsys):
    with console.simulating("simulating") as bar:
        bar.announce("ring: 3 years")
        bar.announce("ring: 3 years")
    assert capsys.readouterr().err == "ringside: ring: 3 years\n"


def test_measuring_stays_silent_in_a_pipe(capsys, monkeypatch):
    monkeypatch.setattr(console, "PERIOD_S", 0.01)
    with console.progress("measuring", 1) as bar:
        time.sleep(0.05)
        bar.done("measured")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("figure", [float("inf"), float("nan")])
def test_what_is_no_number_is_never_printed(capsys, figure):
    with pytest.raises(ArithmeticError):
        console.print_answer("time", console.TextTable([("time", "(us)")], [[figure]]))
    with pytest.raises(ValueError, match="not JSON compliant"):
        console.print_json("simulate", {"time_s": figure})
    assert capsys.readouterr().out == "# time\n"


def test_help_states_the_limits_that_hold():
    (option,) = Force.__metadata__
    assert f"{effort.MAX_TRANSFERS:,} transfers" in option.help
    assert format_size(effort.MAX_MEMORY) in option.help


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (0, ""),
        (1, "1 row without a usable time was left out"),
        (9, "9 rows without a usable time were left out"),
    ],
)
def test_rows_that_are_left_out_are_counted(capsys, rows, message):
    console.left_out(rows)
    assert capsys.readouterr().err == (f"ringside: {message}\n" if message else "")

"""Control characters in names from outside reach no terminal: in answers, tables, errors and bars."""

import io
import json
import sys
import unicodedata

import pytest

from ringside import console
from ringside.door import behind, door, one_line, plain
from tests.validation.traces.kineto_jobs import Rank

CONTROL = [
    chr(code)
    for code in range(sys.maxunicode + 1)
    if unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp")
    or unicodedata.bidirectional(chr(code)) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    or chr(code) in "\u061c\u200e\u200f\u200b\ufeff"
]
ENDS = "\n\t"
NASTY = "".join(one for one in CONTROL if not 0xD800 <= ord(one) < 0xE000)
"""As many as a file can hold: halves of characters stand in names of files alone."""


def left(text, but="\n"):
    return [one for one in CONTROL if one in text and one not in but]


def test_nothing_of_any_control_character_is_left():
    assert len(CONTROL) > 2100
    for one in CONTROL:
        assert plain(f"a{one}b") == (f"a{one}b" if one in ENDS else f"a\\u{ord(one):04x}b")
        assert one_line(f"a{one}b") == f"a\\u{ord(one):04x}b"
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert not left(plain(everything), ENDS)
    assert plain("\U000e0041") == "\\U000e0041"


def test_what_people_write_is_left_as_it_is():
    text = "Müller 東京 عربي → µs ±5 % \N{GRINNING FACE} [bold]\n\ttab"
    assert plain(text) == text


def test_json_says_the_same_through_the_door():
    content = {NASTY: [NASTY, "\x7f", 1]}
    assert json.loads(plain(json.dumps(content))) == content


def test_the_door_is_the_stream_in_all_but_what_is_written(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with door():
        print("a\x1b[2Jb", end="")
        sys.stdout.writelines(["\r", "\n"])
        assert sys.stdout.getvalue() == "a\\u001b[2Jb\\u000d\n"
        assert behind(sys.stdout) is stream
    assert sys.stdout is behind(stream) is stream


def test_a_table_keeps_its_columns_and_its_lines(capsys):
    with door():
        console.print_answer(
            f"by {NASTY}",
            console.TextTable([("name", ""), ("n", "\x1b[1m")], [("a\x1b[1m\r\n\tc", 1), ("b", 22)]),
        )
    lines = capsys.readouterr().out.split("\n")
    assert not left("\n".join(lines))
    *_, first, second, end = lines
    assert end == ""
    assert len(first) == len(second)
    assert (first.split()[-1], second.split()) == ("1", ["b", "22"])


def trace_of(folder, name):
    rank = Rank(0, 2)
    rank.collective("all_reduce", 8, 8, "Float", 100, 50, **{"Process Group Name": name})
    rank.event("cpu_op", name, 300, 5)
    head = {
        "deviceProperties": [{"name": name}],
        "distributedInfo": {"backend": name, "rank": 0, "world_size": 2, "nccl_version": name},
    }
    return rank.write(folder, **head)


@pytest.mark.parametrize("words", [[], ["--all"], ["--each"], ["--json"]])
def test_a_trace_of_nasty_names_moves_no_cursor(on_screen, tmp_path, words):
    code, out, err = on_screen("trace", trace_of(tmp_path, NASTY), *words)
    assert (code, err) == (0, "")
    assert not left(out)
    calm = on_screen("trace", trace_of(tmp_path, "calm"), *words)[1]
    if "--all" in words:
        assert len(out.splitlines()) == len(calm.splitlines())
    if "--json" in words:
        assert json.loads(out)["traces"][0]["backend"] == NASTY


NAMES = ["\x1b[2J\x1b[H", "\x9b2J", "a\rb", "\u202egnp.a\u202c", "\udc80\udcff", "a\nringside: fine\n"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize(
    "line",
    [
        "trace {}",
        "compare {} --cluster star:4",
        "simulate {} --cluster star:4",
        "simulate all_reduce --cluster {} --size 1M",
        "simulate all_reduce --cluster star:4 --size {}",
        "simulate all_reduce --cluster star:4 --{} 3",
        "{}",
        "program {} -g 2",
        "pairs {}",
        "sweep {} -o x",
    ],
)
def test_an_error_moves_no_cursor(on_screen, name, line):
    code, out, err = on_screen(*(word.replace("{}", name) for word in line.split()))
    assert code in (1, 2)
    assert err
    assert "Traceback" not in err
    assert not left(out + err)


def test_what_is_logged_and_shown_in_bars_moves_no_cursor(on_screen, capsys, monkeypatch):
    code, out, err = on_screen("-vv", "simulate", "all_reduce", "--cluster", "star:4\x1b[2J", "--size", "1M")
    assert code == 2
    assert not left(out + err)
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    with door(), console.simulating(f"of {NASTY}[/]", 2) as bar:
        bar.done("next \x1b[2J[/red]")
        bar.say("\x9b2J")
    shown = stream.getvalue()
    assert "\x1b[2J" not in shown
    assert "\x9b" not in shown
    assert "\\u001b[2J[/red]" in shown

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ringside.topologies.disk import (
    OutputError,
    add_lines,
    check_outputs,
    held,
    is_stream,
    regular,
    write_file,
    write_folder,
)
from tests.processes import python


def test_a_file_is_made_and_replaced_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    for text in ("first", "second, longer", ""):
        write_file(path, text)
        assert path.read_text() == text
    write_file(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert os.listdir(tmp_path) == ["out.txt"]


def test_permissions_stay(written: Any) -> None:
    path = written("old", "private")
    path.chmod(0o600)
    write_file(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path, there: bool) -> None:
    (tmp_path / "far").mkdir()
    target, link, further = tmp_path / "far" / "target", tmp_path / "link", tmp_path / "further"
    if there:
        target.write_text("old")
    link.symlink_to("far/target")
    further.symlink_to("link")
    write_file(further, "new")
    assert target.read_text() == "new"
    assert (os.readlink(link), os.readlink(further)) == ("far/target", "link")
    assert os.listdir(tmp_path / "far") == ["target"]


def test_what_cannot_be_written_is_refused_before_the_work_and_after_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "lost").symlink_to("no/such/folder/file")
    for name in ("no/folder.txt", "file/under.txt", ".", "loop", "lost", "x" * 300):
        with pytest.raises(OutputError, match=r"cannot be written: .*; write another path"):
            check_outputs([tmp_path / name])
        with pytest.raises(OutputError, match="cannot be written"):
            write_file(tmp_path / name, "text")
    assert sorted(os.listdir(tmp_path)) == ["file", "loop", "lost"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_is_write_protected_is_left_alone(written: Any) -> None:
    path = written("old", "mine")
    path.chmod(0o400)
    with pytest.raises(OutputError, match="write-protected"):
        write_file(path, "new")


def test_outputs_need_files_of_their_own(tmp_path: Path) -> None:
    a, b, link = tmp_path / "a", tmp_path / "b", tmp_path / "link"
    a.write_text("measured")
    link.symlink_to("a")
    check_outputs([a, b, None], inputs=["star:4", "none", b])
    check_outputs([Path(os.devnull), Path(os.devnull)], inputs=[os.devnull])
    for outputs, inputs in (([b, b], []), ([a], [a]), ([link], [a]), ([a], [link]), ([a, link], [])):
        with pytest.raises(OutputError, match=r"it is an input|another output has this path"):
            check_outputs(outputs, inputs)


def test_a_device_is_written_into_and_stays_a_device() -> None:
    before = os.stat(os.devnull)
    write_file(Path(os.devnull), "text")
    assert os.stat(os.devnull).st_rdev == before.st_rdev
    assert is_stream(Path(os.devnull))


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full")
def test_a_full_device_is_an_error_in_words() -> None:
    check_outputs([Path("/dev/full")])
    with pytest.raises(OutputError, match="/dev/full: cannot be written: No space left on device"):
        write_file(Path("/dev/full"), "text")
    assert Path("/dev/full").is_char_device()


def test_a_pipe_gets_all_of_it_and_one_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OutputError, match="it has no reader"):
        write_file(pipe, "text")
    got: list[str] = []
    reading = threading.Event()

    def read() -> None:
        descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(descriptor, True)
        reading.set()
        with open(descriptor) as file:
            while not (text := file.read()):
                pass
            got.append(text)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert reading.wait(5)
    write_file(pipe, "x" * 500_000)
    reader.join(5)
    assert got == ["x" * 500_000]
    assert pipe.is_fifo()


def test_our_own_output_is_written_where_it_stands(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from ringside.topologies.disk import write_file;"
        "print('before'); write_file(Path('/dev/stdout'), 'text\\n'); print('after')"
    )
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "before\ntext\nafter\n"
    assert python("-c", code).stdout == "before\ntext\nafter\n"


def test_what_may_have_no_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            regular(path)
    (tmp_path / "file").write_text("x")
    assert regular(tmp_path / "file").read_text() == "x"
    with pytest.raises(FileNotFoundError):
        regular(tmp_path / "missing").read_text()


def test_what_a_killed_process_of_the_same_number_left_hinders_nobody(tmp_path: Path) -> None:
    (tmp_path / f".ringside.{os.getpid()}").write_text("half")
    write_file(tmp_path / "out.txt", "text")
    write_folder(tmp_path / "out", {"a": b"a"})
    assert ((tmp_path / "out.txt").read_text(), (tmp_path / "out/a").read_text()) == ("text", "a")


def test_what_is_new_may_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "whole", "text")
        add_lines(tmp_path / "grown", "text\n")
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("whole", "grown")] == [0o640] * 2


ADDING = """
import sys
from pathlib import Path
from ringside.topologies.disk import add_lines
for number in range(200):
    add_lines(Path("out.jsonl"), f"{sys.argv[1]} {number} {'x' * 9000}\\n")
"""


@pytest.mark.slow
def test_processes_that_add_lines_at_once_lose_none(tmp_path: Path) -> None:
    adding = [subprocess.Popen([sys.executable, "-c", ADDING, name], cwd=tmp_path) for name in "abcd"]
    assert [process.wait() for process in adding] == [0] * 4
    lines = [line.split() for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for name in "abcd":
        assert [int(number) for who, number, _ in lines if who == name] == list(range(200))
    assert {len(rest) for _, _, rest in lines} == {9000}


def test_a_line_is_begun_after_one_that_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for before, after in (("", "new\n"), ("old\n", "old\nnew\n"), ("old", "old\nnew\n")):
        path.write_text(before)
        add_lines(path, "new\n")
        assert path.read_text() == after


CUT = """
import resource, signal
from pathlib import Path
from ringside.topologies.disk import OutputError, add_lines
path = Path("out.jsonl")
add_lines(path, "first\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    add_lines(path, "a line that is longer than what is left\\n")
except OutputError as error:
    print(error)
"""


def test_a_line_for_which_there_is_no_room_is_not_there_in_part(tmp_path: Path) -> None:
    assert python("-c", CUT, cwd=tmp_path).stdout == (
        "out.jsonl: cannot be written: File too large; write another path\n"
    )
    assert (tmp_path / "out.jsonl").read_text() == "first\n"


HOLDING = """
import sys
from pathlib import Path
from ringside.topologies.disk import held, write_file
with held(Path("out.json")):
    write_file(Path("out.json"), "mine")
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_file_that_another_process_writes_is_refused_until_it_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    for end in (lambda process: process.communicate("\n"), subprocess.Popen.kill):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDING],
            cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        says = "cannot be written: another process is writing it; write another path"
        with pytest.raises(OutputError, match=says), held(path):
            pass
        end(process)
        process.communicate()
        with held(path):
            write_file(path, "ours")
        assert (path.read_text(), os.listdir(tmp_path)) == ("ours", ["out.json"])


def test_of_those_who_want_a_file_at_once_one_has_it(tmp_path: Path) -> None:
    path, holders, most = tmp_path / "out", [0], [0]

    def want() -> None:
        for _ in range(200):
            try:
                with held(path):
                    holders[0] += 1
                    most[0] = max(most[0], holders[0])
                    holders[0] -= 1
            except OutputError:
                continue

    threads = [threading.Thread(target=want) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]

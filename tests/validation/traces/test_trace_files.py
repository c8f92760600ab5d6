"""Files and archives of traces that unpack to more than a machine's memory are refused early."""

import gzip
import io
import tarfile
import tracemalloc

import pytest

from ringside.validation.readers.kineto import TraceError, files, read_traces
from tests.validation.traces.kineto_jobs import Rank


def bomb(nbytes):
    """Return a gzip of a trace of this number of bytes."""
    return gzip.compress(b'{"traceEvents": [' + b" " * nbytes)


def archived(name, content):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return held.getvalue()


def header_of(nbytes):
    """Return an archive whose first header declares this number of bytes."""
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, nbytes
    return member.tobuf(tarfile.GNU_FORMAT) + b"0" * nbytes


BOMBS = {
    "a.json.gz": bomb,
    "a.json": lambda nbytes: gzip.decompress(bomb(nbytes)),
    "a.tar": lambda nbytes: archived("b.json.gz", bomb(nbytes)),
    "a.tar.gz": lambda nbytes: gzip.compress(archived("b.json", gzip.decompress(bomb(nbytes)))),
    "a.tgz": lambda nbytes: gzip.compress(header_of(nbytes)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_unpacks_to_too_much_is_refused_and_never_held(name, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 2**21)
    (tmp_path / name).write_bytes(BOMBS[name](2**26))
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match=r"more than 2,097,152 bytes unpacked"):
            read_traces([tmp_path])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2**23


def test_an_archive_of_too_much_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_ARCHIVE", 2**20)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(archived("notes.txt", b" " * 2**22) * 3))
    with pytest.raises(TraceError, match=r"more than 1,048,576 bytes unpacked"):
        read_traces([tmp_path])


def test_what_is_as_large_as_allowed_is_read(tmp_path, monkeypatch):
    rank = Rank(0, 2)
    rank.collective("all_reduce", 8, 8, "Float", 100, 50)
    path = rank.write(tmp_path)
    monkeypatch.setattr(files, "MAX_BYTES", path.stat().st_size)
    assert len(read_traces([path])[0].collectives) == 1
    monkeypatch.setattr(files, "MAX_BYTES", path.stat().st_size - 1)
    with pytest.raises(TraceError, match="bytes unpacked, the limit; profile fewer steps"):
        read_traces([path])

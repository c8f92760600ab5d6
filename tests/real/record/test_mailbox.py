"""What recorded ranks tell each other."""

import pytest

from ringside.real.record.calls import mailbox


@pytest.fixture
def mail(tmp_path, monkeypatch):
    monkeypatch.setattr(mailbox, "_counts", mailbox.Counter())
    (tmp_path / "mail").mkdir()
    return tmp_path


def test_a_rank_that_has_ended_is_heard_again(mail):
    mailbox.use(mail / "mail", 0)
    mailbox.publish("world", "first")
    mailbox.publish("world", "last")
    (mail / "rank0.json").touch()
    mailbox._counts.clear()  # rank 1 is another process
    mailbox.use(mail / "mail", 1)
    assert [mailbox.read(0, "world") for _ in range(4)] == ["first", "last", "last", "last"]
    with pytest.raises(EOFError, match="rank 0, whose recording has ended, did not send this"):
        mailbox.read(0, "another")

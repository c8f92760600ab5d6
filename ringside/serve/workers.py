"""Processes that answer questions beside the server, so that one can be cancelled while it is answered."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

GRACE_S = 0.3
"""How long a cancelled question may still run: it costs less than another process."""


def _answer_questions(connection: "Connection[Any, Any]") -> None:
    """Answer questions until the server ends: the life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the server ends its workers
    threading.Thread(target=_end_with_server, daemon=True).start()
    from ringside.errors import message
    from ringside.serve.views import view
    from ringside.sim.effort import watched

    def say(text: str) -> None:
        connection.send({"progress": text})

    def show(done: int, total: int) -> None:
        say(f"{done:,} of {total:,} transfers")

    while True:
        try:
            screen, name, state = connection.recv()
        except EOFError:
            return
        try:
            with watched(say, show):
                connection.send({"answer": view(screen, name, state, say)})
        except Exception as error:
            connection.send({"error": message(error)})


def _end_with_server() -> None:
    server = parent_process()
    if server is not None:
        wait([server.sentinel])
    os._exit(0)


class _Worker:
    """A process, which answers one question at a time."""

    def __init__(self, context: Any) -> None:
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_answer_questions, args=(other,), daemon=True)
        self._process.start()
        other.close()

    def send(self, question: tuple[str, str, dict[str, str]]) -> None:
        """Give it a question."""
        self._connection.send(question)

    async def receive(self) -> dict[str, Any]:
        """Return its next message; raise EOFError if it has ended."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        number = self._connection.fileno()
        loop.add_reader(number, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(number)
        message: dict[str, Any] = self._connection.recv()
        return message

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.join()
        self._connection.close()


def _is_final(message: dict[str, Any]) -> bool:
    """Return whether it is the last message about a question."""
    return "answer" in message or "error" in message


class Workers:
    """A number of workers; who asks takes one that is idle, and gives it back."""

    def __init__(self, count: int) -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(["ringside.serve.views"])
        self._idle: asyncio.Queue[_Worker] = asyncio.Queue()
        self._all = {_Worker(self._context) for _ in range(count)}
        for worker in self._all:
            self._idle.put_nowait(worker)
        self._leaving: set[asyncio.Task[None]] = set()

    async def ask(self, screen: str, name: str, state: dict[str, str]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the messages about a question, its answer or error last; end it when the reader leaves."""
        worker = await self._idle.get()
        is_done = False
        try:
            worker.send((screen, name, state))
            while not is_done:
                message = await worker.receive()
                is_done = _is_final(message)
                if is_done:
                    self._idle.put_nowait(worker)
                yield message
        except (EOFError, OSError):
            yield {"error": "the process that answered has ended, perhaps for lack of memory; ask for less"}
        finally:
            if not is_done:
                task = asyncio.get_running_loop().create_task(self._retire(worker))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def _retire(self, worker: _Worker) -> None:
        """Take a worker back once it is done, or replace it after some time."""
        try:
            async with asyncio.timeout(GRACE_S):
                while not _is_final(await worker.receive()):
                    pass
        except (TimeoutError, EOFError, OSError):
            worker.end()
            self._all.discard(worker)
            worker = _Worker(self._context)
            self._all.add(worker)
        self._idle.put_nowait(worker)

    def end(self) -> None:
        """End all."""
        for worker in self._all:
            worker.end()

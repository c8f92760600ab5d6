"""The process that imports torch once and forks every rank, into its emulated host if it has one.

``python -m ringside.real.launch.zygote`` reads orders (`ringside.real.launch.forks.Order`) from its standard
input, one JSON object per line. It carries them out in turn and prints a line for each: null on success, else
the first rank to fail and its exit code. It ends with its input, or with the process that started it.
"""

import json
import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path

import ringside.real.collective.worker  # noqa: F401 - with all of torch, before anything is forked
from ringside.real.launch.forks import Order
from ringside.real.launch.parent import die_with_parent


def main() -> None:
    """Carry out orders until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        answers.write(json.dumps(_serve(Order(**json.loads(line)))) + "\n")
        answers.flush()


def _serve(order: Order) -> dict[str, int] | None:
    """Fork the ranks and wait for them; return the first that fails, after the others have been killed."""
    parent = os.getpid()
    if any(order.homes):
        import_module("ringside.real.emulate.namespaces")  # once, not in every rank; it needs pyroute2
    import_module(order.worker)
    ranks = {}
    for rank in range(len(order.homes)):
        child = os.fork()
        if child == 0:
            _live(order, rank, parent)
        ranks[child] = rank
    failure = None
    while ranks:
        child, status = os.wait()
        rank, code = ranks.pop(child), os.waitstatus_to_exitcode(status)
        if code and failure is None:
            failure = {"rank": rank, "code": code}
            for other in ranks:
                os.kill(other, signal.SIGKILL)
    return failure


def _live(order: Order, rank: int, parent: int) -> None:
    """Run a rank, from the fork to its exit."""
    die_with_parent()
    code = 1
    try:
        if os.getppid() != parent:  # the parent died before this rank could die with it
            return
        log = os.open(Path(order.folder, str(rank)), os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if order.homes[rank]:
            from ringside.real.emulate import namespaces

            namespaces.enter(order.homes[rank])
        os.environ.update(
            RANK=str(rank),
            WORLD_SIZE=str(len(order.homes)),
            LOCAL_RANK=str(order.homes[:rank].count(order.homes[rank])),
            MASTER_ADDR=order.address,
            MASTER_PORT=str(order.port),
            GLOO_SOCKET_IFNAME=order.interface,
            OMP_NUM_THREADS="1",
        )
        worker = import_module(order.worker)
        worker.carry_out(Path(order.folder, "job.json"), Path(order.folder, "rows.jsonl"))
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()

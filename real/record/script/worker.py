"""The process of one recorded rank: ``python -m ringside.real.record.script.worker ORDER``."""

import os
import runpy
import sys
import traceback
from pathlib import Path

import torch

from ringside.real.record.calls import batches, ddp, groups, mailbox, objects, started
from ringside.real.record.part import RankOrder, RankPart
from ringside.real.record.rules import regions, samples
from ringside.real.record.script import attention, cuda, device, limits, places, tensors
from ringside.real.record.script.mode import DeviceMode
from ringside.real.record.script.purposes import Purposes
from ringside.real.record.script.refusal import Refusal
from ringside.real.record.script.step import recorded_step
from ringside.real.record.script.steps import Enough, Steps
from ringside.real.record.script.tape import TAPE
from ringside.real.record.shims import install as shims


def main() -> None:
    """Run the script of an order, and write what it recorded."""
    order = RankOrder.read(Path(sys.argv[1]))
    part = record(order)
    part.write(Path(order.result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the script's threads may not end


def record(order: RankOrder) -> RankPart:
    """Run the script as the order's rank until enough steps are recorded."""
    purposes = Purposes()
    steps = Steps(order.steps)
    try:
        _install(order, steps, purposes)
        error = _run(order, steps)
    except (device.DeviceError, Refusal) as failure:
        error = str(failure)
    notes = tuple(dict.fromkeys(TAPE.notes))
    part = RankPart(
        rank=order.rank, torch=torch.__version__, steps=len(steps.marks), notes=notes, error=error
    )
    if error:
        return part
    recorded, own = recorded_step(order.rank, steps, purposes)
    return RankPart(
        rank=order.rank, torch=torch.__version__, steps=len(steps.marks), recorded=recorded, groups=own,
        samples=samples.of_step(steps), notes=notes,
    )  # fmt: skip


def _install(order: RankOrder, steps: Steps, purposes: Purposes) -> None:
    index = order.rank % order.per_node
    torch.set_num_threads(1)
    device.install(index, order.per_node)
    TAPE.with_places = order.with_source
    mailbox.use(Path(order.mail), order.rank)
    cuda.install(index, order.per_node)
    tensors.install()
    attention.install()
    regions.install()
    for module in (groups, objects, batches, ddp, started, steps, purposes, samples):
        module.install()
    shims.install(order.shims)
    limits.install(str(Path(order.result).parent))


def _run(order: RankOrder, steps: Steps) -> str:
    """Run the script; return why nothing was recorded, empty if something was."""
    sys.argv = [order.script, *order.arguments]
    sys.path[0] = os.getcwd() if order.is_module else os.path.dirname(os.path.abspath(order.script))
    end = "ended"
    try:
        with DeviceMode():  # type: ignore[no-untyped-call]
            if order.is_module:
                runpy.run_module(order.script, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(order.script, run_name="__main__")
    except Enough:
        return ""
    except Refusal as refused:
        return str(refused)
    except SystemExit as exit:
        end = f"exited with {exit.code!r}"
    except BaseException as failure:
        traceback.print_exc()
        return _of(failure, places.of(failure))
    if len(steps.marks) < 3:
        return (
            f"the script {end} after {len(steps.marks)} optimizer steps, recording needs 3; "
            "give it more steps by its own arguments"
        )
    return ""


def _of(failure: BaseException, place: str | None) -> str:
    """Return a failure of the script's in a line."""
    text = " ".join(str(failure).split())
    where = f"{place}: " if place else ""
    return f"{where}{type(failure).__name__}: {text}"[:500]


if __name__ == "__main__":
    main()

"""One rank of a script, run for real as by `gloo_rank`; the memory of its tensors is written down.

``torchrun ... -m tests.real.record.memory_rank FOLDER SCRIPT ARGS...``: rank R writes FOLDER/R.json, for each
step the bytes of tensors at its start and the most in it: by the references to their storages, and by torch's
profiler, without Gloo's own copies, which its threads free unseen, and workspaces of kernels.
"""

import json
import os
import runpy
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, record_function

from ringside.real.training.storages import StorageRecorder
from tests.real import gloo_rank

STEP = "a step ends"

MEMORY = "[memory]"

PAUSE_S = 0.01


def main():
    """Run the script."""
    folder, script = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    torch.set_num_threads(1)
    gloo_rank.replace()
    have_gloo_let_go()
    recorder = StorageRecorder()
    referred = []

    def stepped(*_):
        if referred:
            referred[-1][1] = recorder.peak.nbytes
        recorder.start()
        referred.append([recorder.peak.nbytes, 0])
        with record_function(STEP):
            pass

    register_optimizer_step_post_hook(stepped)
    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
    with profiler, gloo_rank.OnCpu(), recorder:
        runpy.run_path(script, run_name="__main__")
    profiled = list(steps_of(profiler.profiler.kineto_results.experimental_event_tree()))
    result = {"referred": referred[:-1], "profiled": profiled[:-1]}
    Path(folder, f"{os.environ['RANK']}.json").write_text(json.dumps(result))


def have_gloo_let_go():
    """Pause after each wait for a call, until Gloo's thread holds the script's tensors no more.

    Else it may be the last that does, and the profiler sees no thread's frees but those of the script's own.
    """
    dist.Work.wait = with_pause(dist.Work.wait)
    functional.wait_tensor = with_pause(functional.wait_tensor)


def with_pause(wait):
    def waited(*args, **kwargs):
        result = wait(*args, **kwargs)
        time.sleep(PAUSE_S)
        return result

    return waited


def steps_of(tree):
    """Yield the bytes at the start of each step, and the most in it."""
    now, step, of_gloo = 0, None, set()
    for event, is_of_call in sorted(all_in(tree), key=lambda one: one[0].start_time_ns):
        if event.name == STEP:
            if step:
                yield step
            step = [now, now]
        elif event.name == MEMORY:
            address, nbytes = event.extra_fields.ptr, event.extra_fields.alloc_size
            if nbytes > 0 and is_of_call:
                of_gloo.add(address)
            elif address in of_gloo:
                of_gloo.remove(address)
                now += max(nbytes, 0)  # what Gloo's threads have freed is another's
            else:
                now += nbytes
            if step:
                step[1] = max(step[1], now)
    yield step


def all_in(tree, is_of_call=False):
    """Yield events, but for workspaces of kernels, and whether a process group or Gloo makes them."""
    own = workspaces(tree)
    for event in tree:
        if event.name == MEMORY and event.parent and event.extra_fields.ptr in own:
            continue
        yield event, is_of_call
        yield from all_in(event.children, is_of_call or event.name.startswith(("c10d::", "gloo:")))


def workspaces(events):
    """Return the addresses of what an operator allocates and then frees itself."""
    allocated, own = set(), set()
    for event in sorted(events, key=lambda one: one.start_time_ns):
        if event.name == MEMORY and event.extra_fields.alloc_size > 0:
            allocated.add(event.extra_fields.ptr)
        elif event.name == MEMORY and event.extra_fields.ptr in allocated:
            own.add(event.extra_fields.ptr)
    return own


if __name__ == "__main__":
    main()

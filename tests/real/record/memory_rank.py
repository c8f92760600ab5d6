"""One rank of a script, run for real as by `gloo_rank`; the memory of its tensors is written down.

``torchrun ... -m tests.real.record.memory_rank FOLDER SCRIPT ARGS...``: rank R writes FOLDER/R.json, for each
step the bytes of tensors at its start and the most in it: by the references to their storages, and by torch's
profiler, without Gloo's own copies, as the profiler does not see all that Gloo's threads free.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, record_function

from ringside.real.training.storages import StorageRecorder
from tests.real import gloo_rank

STEP = "a step ends"


def main():
    """Run the script."""
    folder, script = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    torch.set_num_threads(1)
    gloo_rank.replace()
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


def steps_of(tree):
    """Yield the bytes at the start of each step, and the most in it."""
    now, step, of_gloo = 0, None, set()
    for event, is_of_call in sorted(all_in(tree), key=lambda one: one[0].start_time_ns):
        if event.name == STEP:
            if step:
                yield step
            step = [now, now]
        elif event.name == "[memory]":
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
    """Yield all events, and whether a call of a process group or Gloo makes them."""
    for event in tree:
        yield event, is_of_call
        yield from all_in(event.children, is_of_call or event.name.startswith(("c10d::", "gloo:")))


if __name__ == "__main__":
    main()

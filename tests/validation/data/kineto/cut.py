"""Cut a trace of PyTorch's profiler down to its communication, for the samples beside this file.

    python -m tests.validation.data.kineto.cut TRACE.json[.gz] OUT.json.gz [STEPS]

Kept are all kernels and copies (those that are no communication without their names), what launched them,
what the host waited for, the calls of communication with their shapes and sizes, and the steps; of a trace
with a GPU no other operator, and no stack of Python. With STEPS, what begins after so many steps is left out.
"""

import gzip
import json
import re
import sys
from pathlib import Path

HEAD = ("schemaVersion", "distributedInfo", "record_shapes", "displayTimeUnit", "baseTimeNanoseconds")
GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
CALL = re.compile(r"record_param_comms|c10d::|(nccl|gloo):|ProfilerStep#")
WAIT = re.compile(r"(cuda|hip)(StreamWaitEvent|DeviceSynchronize)")
ARGS = re.compile(
    r"External id|correlation|device|stream|grid|Collective name|.* msg nelems|Group size|dtype|.* split size"
    r"|Process Group .*|Seq|Comms Id|Input Dims|Input type|Rank|.* Rank|Global rank .*"
)


def cut(trace, steps=None):
    events = trace["traceEvents"]
    begins = sorted(e["ts"] for e in events if e.get("ph") == "X" and e["name"].startswith("ProfilerStep#"))
    end = begins[steps] if steps is not None and steps < len(begins) else float("inf")
    on_gpu = any(e.get("cat") in GPU for e in events)
    kept = [e for e in events if e.get("ph") == "X" and e["ts"] < end and e.get("cat") in GPU]
    launched = {e["args"].get("correlation") for e in kept}
    for event in events:
        category = event.get("cat")
        if event.get("ph") != "X" or event["ts"] >= end:
            continue
        launch = category == "cuda_runtime" and (
            WAIT.match(event["name"]) or event["args"].get("correlation") in launched
        )
        if launch or (
            category in ("cpu_op", "user_annotation") and (CALL.match(event["name"]) or not on_gpu)
        ):
            kept.append(event)
    return {
        **{key: trace[key] for key in HEAD if key in trace},
        "deviceProperties": [{"name": one.get("name")} for one in trace.get("deviceProperties", [])],
        "traceEvents": [small(event) for event in kept],
    }


def small(event):
    name = event["name"]
    if event["cat"] in GPU and "nccl" not in name:
        name = event["cat"]
    args = {key: value for key, value in event.get("args", {}).items() if ARGS.fullmatch(key)}
    if event["cat"] in GPU and "nccl" not in name:
        args = {key: args[key] for key in ("correlation", "device") if key in args}
    return {
        **{key: event[key] for key in ("ph", "cat", "pid", "tid", "ts", "dur")},
        "name": name,
        **({"args": args} if args else {}),
    }


def main(source, target, steps=None):
    content = Path(source).read_bytes()
    trace = json.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    text = json.dumps(cut(trace, None if steps is None else int(steps)), separators=(",", ":"))
    Path(target).write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Jobs in the format of PyTorch's profiler, for tests with a known result."""

import json
from dataclasses import dataclass, field

WIDTHS = {"Float": 4, "BFloat16": 2, "Long": 8, "Byte": 1}
CPP = {"Float": "float", "BFloat16": "c10::BFloat16", "Long": "long int", "Byte": "unsigned char"}
WORDS = {
    "all_reduce": ("allreduce", "AllReduce_Sum_f32_RING_LL"),
    "all_gather": ("_allgather_base", "AllGather_RING_LL"),
    "reduce_scatter": ("_reduce_scatter_base", "ReduceScatter_Sum_f32_RING_LL"),
    "broadcast": ("broadcast", "Broadcast_RING_LL"),
    "all_to_all": ("all_to_allv", "SendRecv"),
    "send": ("send", "SendRecv"),
    "recv": ("recv", "SendRecv"),
}


@dataclass
class Rank:
    """A rank's file on its way; times in whole microseconds of its own clock."""

    rank: int
    ranks: int
    clock_us: int = 0
    """How far its clock is ahead."""
    in_args: bool = True
    """Whether sizes stand in the kernel's arguments, or, as before PyTorch 2.2, on operators."""
    events: list[dict] = field(default_factory=list)
    number: int = 0

    def event(self, category, name, ts, dur, tid=1, pid=100, **args):
        where = {"pid": pid, "tid": tid, "ts": ts, "dur": dur}
        self.events.append({"ph": "X", "cat": category, "name": name, **where, "args": args})

    def launched(self, name, called, ts, dur, stream, **args):
        self.number += 1
        self.event("cuda_runtime", "cudaLaunchKernelExC", called, 1, correlation=self.number)
        args |= {"stream": stream, "device": 0, "correlation": self.number}
        self.event("kernel", name, ts, dur, pid=0, tid=stream, **args)

    def work(self, ts, dur, called=None):
        self.launched("gemm", ts - 1 if called is None else called, ts, dur, 7)

    def wait(self, at):
        self.event("cuda_runtime", "cudaStreamWaitEvent", at, 0)

    def step(self, number, ts, dur):
        self.event("user_annotation", f"ProfilerStep#{number}", ts, dur)

    def collective(self, kind, given, got, dtype, ts, dur, called=None, group=None, channels=8, **more):
        """Return a collective of ``given`` elements in and ``got`` out, with the kernel's own time."""
        called = ts - 5 if called is None else called
        word, kernel = WORDS[kind]
        ranks = list(range(self.ranks)) if group is None else group
        args = {
            "Collective name": word, "In msg nelems": given, "Out msg nelems": got, "Group size": len(ranks),
            "dtype": dtype, "In split size": "[]", "Out split size": "[]",
            "Process Group Name": "0" if group is None else str(ranks), "Process Group Ranks": str(ranks),
            **more,
        }  # fmt: skip
        if self.in_args:
            self.event("cpu_op", "record_param_comms", called - 2, 4, **args)
        else:
            shapes, types = [[got], [given]], [CPP[dtype]] * 2
            both = {"Input Dims": shapes, "Input type": types}
            self.event("cpu_op", f"c10d::{kind}_base_", called - 3, 6, **both)
            one = {"Input Dims": [[given]], "Input type": [CPP[dtype]]}
            self.event("cpu_op", "record_param_comms", called - 2, 4, **one)
            self.event("user_annotation", f"nccl:{kind}", called - 1, 2, **one)
        self.launched(
            f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)", called, ts, dur, 20,
            grid=[channels, 1, 1], **(args if self.in_args else {}),
        )  # fmt: skip

    def trace(self, **head):
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"name": "NVIDIA H100 80GB HBM3"}] * 8,
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.ranks},
            "baseTimeNanoseconds": 10**18 + self.clock_us * 1000,
            "traceEvents": self.events,
            **head,
        }

    def write(self, folder, **head):
        path = folder / f"rank{self.rank}.json"
        path.write_text(json.dumps(self.trace(**head)))
        return path

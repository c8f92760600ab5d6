"""All-to-alls of DeepSeek-V3 beside its compute, in a profile of its training.

github.com/deepseek-ai/profile-data @ 4496024, train.json: one forward and one backward of four layers of
experts, one beside the other as DualPipe has them, 64 expert-parallel ranks on H800, 4,096 tokens, balanced
routing, no messages of the pipeline. Times are sums over kernels of a stream; which combine is forward's
follows from the products before it.

Backward's dispatch, which sends only tokens, sets the network's rate; combines send 16 bits an element where
it sends 8 and a scale. Concurrent compute and communication take the time of the longer one. The naive rules
are that a combine takes as long as a dispatch, and that all communication is exposed. The predictions are
sums of the profile's own streams: `train` has no such step.
"""

import csv
from functools import cache
from pathlib import Path

from ringside.sim.libraries.experts.tokens import PHASES, ExpertTokens
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable


@cache
def seconds() -> dict[str, float]:
    """Return the seconds of each row."""
    with Path(__file__).with_name("deepseek_trace.csv").open(encoding="utf-8", newline="") as file:
        return {row["what"]: float(row["us"]) / 1e6 for row in csv.DictReader(file)}


def judged() -> list[JudgedRow]:
    """Return both combines, and the span."""
    took = seconds()
    dispatch = took["dispatch in backward"]
    token = ExpertTokens(tokens=1)
    combine = dispatch * token.nbytes("combine") / token.nbytes("dispatch")
    waiting = took["waiting for others in both"]
    sent = sum(took[f"{phase} in {way}"] for phase in PHASES for way in ("forward", "backward"))
    apart = took["compute"] + sent + waiting
    beside = max(took["compute"], sent + waiting)
    return [
        *(
            JudgedRow("combine", way, took[f"combine in {way}"], combine, dispatch, "all-to-all")
            for way in ("forward", "backward")
        ),
        JudgedRow("span", "of all streams", took["span"], beside, apart, "overlap"),
    ]


TABLE = JudgedTable(
    name="deepseek_trace", title="A profile of DeepSeek-V3's training",
    source="github.com/deepseek-ai/profile-data @ 4496024",
    sets="the dispatch of backward; for the span, each stream by itself",
    rule="a combine as long as a dispatch; nothing hidden", judged=judged,
)  # fmt: skip

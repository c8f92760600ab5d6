"""How long the kernels of one phase run: a floor, then the slowest of thread blocks, NVLink and cards.

What is limited in several ways takes the fourth root of the sum of the fourth powers, which is at least the
slowest way and at most 1.4 times it. Each share of a link is below 1, so no time is below the traffic's.
Microseconds, thousands of bytes and GB/s.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ringside.sim.libraries.experts.work import Floats, PhaseWork

Values = Mapping[str, float]
KernelTime = Callable[[PhaseWork, Values], Floats]

SHARPNESS = 4


@dataclass(frozen=True, slots=True)
class KernelPrior:
    """The prior of a parameter: ``sigma`` in natural logarithms, of x / (1 - x) for a share of a link."""

    value: float
    sigma: float
    meaning: str
    is_share: bool = False


def once_us(work: PhaseWork, values: Values) -> Floats:
    """DeepEP's normal kernels: a token goes to each rank once, by way of its domain's forwarder.

    Half of the thread blocks send and half receive, two to a channel, each with a list of tokens for every
    rank; the longest list ends last. Between domains blocks handle the copies to forwarders too.
    """
    several = work.several
    floor = values["floor_us"] * np.where(work.blackwell, values["blackwell"], 1.0)
    floor = floor * (1 + values["wider"] * work.hidden / 7168) + np.where(several, values["cards_us"], 0.0)
    listed = work.tokens * work.gpus / work.ranks / (work.sms / 2)
    uneven = 1 + values["uneven"] / np.sqrt(1 + listed)
    handled = work.gpus + np.where(several, values["forwarded"] * work.machines, 0.0)
    a_token = values["token_us"] + work.kbytes / values["token_GBps"]
    a_copy = values["copy_us"] + work.kbytes / values["copy_GBps"]
    blocks = work.tokens * work.busiest * (a_token + handled * a_copy) * uneven / work.sms
    nvlink, cards = work.once_s()
    return floor + _slowest(blocks, nvlink / values["nvlink"], cards / values["cards"])


def each_us(work: PhaseWork, values: Values) -> Floats:
    """DeepEP's kernels of low latency: each copy is a message of its own, written straight to its rank.

    A thread block sends for a whole number of experts, so few experts leave multiprocessors idle; all of them
    unpack or add up what arrives. Every rank waits for a count of each expert, and for all others.
    """
    generation = np.where(work.blackwell, values["blackwell"], 1.0)
    floor = generation * (values["floor_us"] + values["doubling_us"] * np.log2(work.ranks))
    floor = floor + values["experts_us"] * work.experts / 256 + values["wide_us"] * work.hidden / 7168
    floor = floor + np.where(work.several, values["cards_us"], 0.0)
    blocks = np.ceil(work.experts / np.ceil(work.experts / work.multiprocessors))
    moved = work.tokens * work.copies * work.busiest * work.kbytes
    sending = values["send_GBps"] * np.where(work.blackwell, values["blackwell_send"], 1.0)
    taking = values["take_GBps"] * np.where(work.blackwell, values["blackwell_take"], 1.0)
    sent, taken = moved / (sending * blocks), moved / (taking * work.multiprocessors)
    nvlink, cards = work.each_s()
    return floor + _slowest(sent, taken, nvlink / values["nvlink"], cards / values["cards"])


def domain_us(work: PhaseWork, values: Values) -> Floats:
    """TensorRT-LLM's exchange inside one NVLink domain: a token goes to each rank once.

    Each rank also fills or adds up a slot for each expert of its tokens. The floor grows with the root of
    ranks: their number and its logarithm fit two, four and eight as well, and lie on either side beyond.
    """
    floor = values["floor_us"] + values["ranks_us"] * np.sqrt(work.ranks)
    slots = work.tokens * work.copies * work.busiest
    copied = slots * (values["slot_us"] + work.kbytes / values["slot_GBps"])
    nvlink, _ = work.once_s()
    return floor + _slowest(copied, nvlink / values["nvlink"])


def notice_us(work: PhaseWork, values: Values) -> Floats:
    """DeepEP's notices before both phases of its normal kernels, between domains; inside one they overlap."""
    waits = values["floor_us"] + values["token_us"] * work.tokens * work.busiest / work.sms
    return np.where(work.several, waits, 0.0)


def indices_us(work: PhaseWork, values: Values) -> Floats:
    """TensorRT-LLM's preparation of a two-sided exchange: where each token goes, known to every rank."""
    return values["floor_us"] + values["ranks_us"] * np.sqrt(work.ranks) + values["token_us"] * work.tokens


def _slowest(*ways: Floats) -> Floats:
    total: Floats = sum((way**SHARPNESS for way in ways), np.zeros_like(ways[0])) ** (1 / SHARPNESS)
    return total


_SHARE = "of a link's rate at which bytes move"

EXPECTED: dict[KernelTime, dict[str, KernelPrior]] = {
    once_us: {
        "floor_us": KernelPrior(26.0, 0.3, "of a kernel that moves almost nothing, on Hopper"),
        "blackwell": KernelPrior(1.2, 0.2, "factor on it from Blackwell on"),
        "wider": KernelPrior(0.1, 1.0, "share of it more with 7168 elements a token"),
        "cards_us": KernelPrior(3.0, 0.5, "more between domains"),
        "token_us": KernelPrior(0.3, 0.7, "of a thread block for a token"),
        "token_GBps": KernelPrior(40.0, 1.0, "at which it reads or writes that token"),
        "copy_us": KernelPrior(0.05, 1.0, "of a thread block for each of a token's copies"),
        "copy_GBps": KernelPrior(28.0, 0.5, "at which it sends or adds a copy"),
        "forwarded": KernelPrior(2.0, 0.7, "copies' work for a copy through a forwarder"),
        "uneven": KernelPrior(0.7, 0.5, "excess of the longest list, in deviations of one"),
        "nvlink": KernelPrior(0.78, 0.4, _SHARE, is_share=True),
        "cards": KernelPrior(0.95, 0.4, _SHARE, is_share=True),
    },
    each_us: {
        "floor_us": KernelPrior(3.0, 0.7, "of a kernel that moves almost nothing, on Hopper"),
        "doubling_us": KernelPrior(2.0, 0.3, "more for each doubling of ranks"),
        "blackwell": KernelPrior(1.5, 0.2, "factor on both from Blackwell on"),
        "experts_us": KernelPrior(3.0, 0.5, "more for 256 experts"),
        "wide_us": KernelPrior(1.5, 0.7, "more with 7168 elements a token"),
        "cards_us": KernelPrior(8.0, 0.5, "more between domains"),
        "send_GBps": KernelPrior(4.0, 0.7, "at which a thread block sends copies, on Hopper"),
        "blackwell_send": KernelPrior(1.5, 0.7, "factor on it from Blackwell on"),
        "take_GBps": KernelPrior(2.5, 0.5, "at which a multiprocessor unpacks or adds up copies, on Hopper"),
        "blackwell_take": KernelPrior(3.0, 0.7, "factor on it from Blackwell on"),
        "nvlink": KernelPrior(0.6, 0.4, _SHARE, is_share=True),
        "cards": KernelPrior(0.93, 0.4, _SHARE, is_share=True),
    },
    domain_us: {
        "floor_us": KernelPrior(10.0, 0.3, "of a kernel that moves almost nothing"),
        "ranks_us": KernelPrior(2.0, 0.7, "more, times the root of ranks"),
        "slot_us": KernelPrior(0.003, 1.5, "to fill a slot, whatever its size"),
        "slot_GBps": KernelPrior(3000.0, 1.5, "at which slots are filled"),
        "nvlink": KernelPrior(0.65, 0.4, _SHARE, is_share=True),
    },
    notice_us: {
        "floor_us": KernelPrior(60.0, 0.3, "of two kernels that move almost nothing"),
        "token_us": KernelPrior(0.16, 1.0, "of a thread block for a token"),
    },
    indices_us: {
        "floor_us": KernelPrior(11.0, 0.3, "of a kernel for one token"),
        "ranks_us": KernelPrior(1.0, 0.7, "more, times the root of ranks"),
        "token_us": KernelPrior(0.007, 0.5, "more for each token"),
    },
}  # fmt: skip
"""Every fitted parameter of each kernel; microseconds and GB/s."""

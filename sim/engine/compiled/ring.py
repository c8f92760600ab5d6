"""Compiled: the recurrence of `ringside.sim.engine.maxplus`, one block of connections after another.

Its loops are short so that each becomes a few vector instructions.
"""

from typing import Any

import numpy as np

from ringside.sim.jit import compiled, entry, fingerprint

BLOCK = 2048


@compiled
def _turn(
    begin: int,
    end: int,
    lags: Any,
    phases: Any,
    figures: tuple[Any, ...],
    state: tuple[Any, ...],
    gamma: float,
) -> None:
    back, credits, before = lags
    sums, first, way = phases
    beta, ahead, behind, sizes = figures
    done, arrived, free, adder = state
    size, rows = len(behind), len(sizes)
    time = np.empty(BLOCK)
    for k in range(begin, end):
        place = first + way * k
        nbytes = sizes[place % rows][place // rows % size :]
        here, wanted = done[k % (back + 1)], done[(k + 1) % (back + 1)][1 + before :]
        for low in range(0, size, BLOCK):
            high = min(low + BLOCK, size)
            _copy(time, wanted[low:high])
            if credits:
                _wait(time, arrived[(k + 1) % (credits + 1)][low:high])
            for number in range(len(beta)):
                _pass(
                    time,
                    ahead[number][low:high],
                    free[number][low:high],
                    nbytes[low:high],
                    beta[number][low:high],
                )
            came = here[1 + low : 1 + high]
            _add(came, free[len(beta) - 1][low:high], behind[low:high])
            if credits:
                _copy(arrived[k % (credits + 1)][low:high], came)
            if gamma and k < sums:
                _reduce(came, adder[low:high], nbytes[low:high], gamma)
        here[0], here[size + 1] = here[size], here[1]


@compiled
def _copy(here: Any, there: Any) -> None:
    for i in range(len(there)):
        here[i] = there[i]


@compiled
def _wait(time: Any, other: Any) -> None:
    for i in range(len(other)):
        time[i] = time[i] if time[i] > other[i] else other[i]


@compiled
def _pass(time: Any, ahead: Any, free: Any, nbytes: Any, beta: Any) -> None:
    """Pass transfers through one link each, behind earlier ones."""
    for i in range(len(ahead)):
        head = time[i] + ahead[i]
        time[i] = head if head > free[i] else free[i]
    for i in range(len(beta)):
        free[i] = time[i] + nbytes[i] * beta[i]


@compiled
def _add(total: Any, one: Any, other: Any) -> None:
    for i in range(len(total)):
        total[i] = one[i] + other[i]


@compiled
def _reduce(came: Any, adder: Any, nbytes: Any, gamma: float) -> None:
    for i in range(len(came)):
        begin = came[i] if came[i] > adder[i] else adder[i]
        adder[i] = came[i] = begin + nbytes[i] * gamma


def _entry(sources: int) -> Any:
    # as in `loop`: a change of compiled code must change the closure that Numba's cache checks
    @entry
    def turn(
        begin: int,
        end: int,
        lags: Any,
        phases: Any,
        figures: tuple[Any, ...],
        state: tuple[Any, ...],
        gamma: float,
    ) -> None:
        """Play the transfers from ``begin`` to before ``end``: `maxplus.play` has the arrays."""
        if sources:
            _turn(begin, end, lags, phases, figures, state, gamma)

    return turn


turn = _entry(fingerprint())

"""Programs that the proof judges are run on real Gloo, and what happens is what it said."""

from concurrent.futures import ThreadPoolExecutor

from real.program.trial import ENDED, FAILS, HANGS, Outcome, trial
from sim.program.check import FAILS as FAILS_BY_PROOF
from sim.program.check import HANGS as HANGS_BY_PROOF
from tests.sim.program.cases import CASES

PATIENCE_S = 4.0
AT_ONCE = 6

LAWLESS = {"send_to_nobody"}
"""Gloo looks for the peer past the end of its list: it waits for what it takes for one, or is killed."""


def test_each_verdict_is_what_real_gloo_does() -> None:
    def run(name: str) -> Outcome:
        return trial(CASES[name].main, CASES[name].ranks, PATIENCE_S)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        names = [name for name, case in CASES.items() if case.gloo]
        outcomes = dict(zip(names, pool.map(run, names), strict=True))
    expected = {HANGS_BY_PROOF: HANGS, FAILS_BY_PROOF: FAILS}

    def wrong(found: dict[str, Outcome]) -> dict[str, Outcome]:
        return {
            name: outcome
            for name, outcome in found.items()
            if outcome.outcome != expected.get(str(CASES[name].gloo), ENDED)
            and (name not in LAWLESS or outcome.outcome == ENDED)
        }

    # of six jobs at once on few cores one is sometimes late; alone it has the machine
    assert not wrong({name: run(name) for name in wrong(outcomes)})
    assert len(outcomes) >= 40

"""Predict how long collective communication and distributed training take on a GPU cluster.

Whoever imports this waits for nothing: each public name is fetched when it is first asked for. Type
checkers see them all; `docs/api.md` shows them at work.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringside.api import goodput as goodput
    from ringside.api import measure as measure
    from ringside.api import pairs as pairs
    from ringside.api import pick as pick
    from ringside.api import read as read
    from ringside.api import search as search
    from ringside.api import sweep as sweep
    from ringside.api import train as train
    from ringside.results import Cell as Cell
    from ringside.results import Result as Result
    from ringside.results import rows as rows
    from ringside.searched import Layouts as Layouts
    from sim.algorithms import register as register
    from sim.algorithms import schedule as schedule
    from sim.calibration import Calibration as Calibration
    from sim.calibration import Fit as Fit
    from sim.calibration import read as read_calibration  # noqa: F401
    from sim.collective import Collective as Collective
    from sim.goodput.job import Cause as Cause
    from sim.goodput.job import Checkpoints as Checkpoints
    from sim.goodput.job import LongJob as LongJob
    from sim.goodput.job import Restart as Restart
    from sim.goodput.study import Goodput as Goodput
    from sim.libraries.library import Prediction as Prediction
    from sim.pick import Pick as Pick
    from sim.predict import predict as predict
    from sim.proof import prove as prove
    from sim.record import Record as Record
    from sim.schedule import Schedule as Schedule
    from sim.training.ddp.buckets import Bucketing as Bucketing
    from sim.training.ddp.job import DataParallel as DataParallel
    from sim.training.ddp.powersgd import PowerSGD as PowerSGD
    from sim.training.parallel.step import ParallelStep as ParallelStep
    from sim.training.step import TrainingStep as TrainingStep
    from topologies import Topology as Topology
    from topologies import load as load
    from topologies import star as star
    from validation.calibrate import calibrate as calibrate
    from validation.compare import Compared as Compared
    from validation.compare import compare as compare
    from validation.pairs import SlowNode as SlowNode
    from validation.pairs import SlowPair as SlowPair
    from validation.pairs import Verdict as Verdict

    __version__: str
else:
    _HOME = {
        "Bucketing": "sim.training.ddp.buckets",
        "Calibration": "sim.calibration",
        "Cause": "sim.goodput.job",
        "Cell": "ringside.results",
        "Checkpoints": "sim.goodput.job",
        "Collective": "sim.collective",
        "Compared": "validation.compare",
        "DataParallel": "sim.training.ddp.job",
        "Fit": "sim.calibration",
        "Goodput": "sim.goodput.study",
        "Layouts": "ringside.searched",
        "LongJob": "sim.goodput.job",
        "ParallelStep": "sim.training.parallel.step",
        "Pick": "sim.pick",
        "PowerSGD": "sim.training.ddp.powersgd",
        "Prediction": "sim.libraries.library",
        "Record": "sim.record",
        "Restart": "sim.goodput.job",
        "Result": "ringside.results",
        "Schedule": "sim.schedule",
        "SlowNode": "validation.pairs",
        "SlowPair": "validation.pairs",
        "Topology": "topologies",
        "TrainingStep": "sim.training.step",
        "Verdict": "validation.pairs",
        "calibrate": "validation.calibrate",
        "compare": "validation.compare",
        "goodput": "ringside.api",
        "load": "topologies",
        "measure": "ringside.api",
        "pairs": "ringside.api",
        "pick": "ringside.api",
        "predict": "sim.predict",
        "prove": "sim.proof",
        "read": "ringside.api",
        "read_calibration": "sim.calibration:read",
        "register": "sim.algorithms",
        "rows": "ringside.results",
        "schedule": "sim.algorithms",
        "search": "ringside.api",
        "star": "topologies",
        "sweep": "ringside.api",
        "train": "ringside.api",
    }

    __all__ = ["__version__", *_HOME]

    def __getattr__(name):
        """What is fetched once stays."""
        if name == "__version__":
            from importlib.metadata import version

            value = version("ringside")
        elif name in _HOME:
            from importlib import import_module

            module, _, original = _HOME[name].partition(":")
            value = getattr(import_module(module), original or name)
        else:
            raise AttributeError(f"module 'ringside' has no attribute {name!r}; it has {', '.join(__all__)}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})

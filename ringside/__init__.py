"""Predict how long collective communication and distributed training take on a GPU cluster.

The import is lazy: each public name is loaded at its first use. Type checkers see them all; `docs/api.md` has
examples.
"""

import os
from typing import TYPE_CHECKING

if not os.path.isdir(os.path.join(__path__[0], "sim")):
    raise ImportError(
        f"{__path__[0]} lacks its symbolic links: run git config core.symlinks true and "
        "git checkout -- ringside there, or install the wheel"
    )

if TYPE_CHECKING:
    from ringside.real.questions.collective_measurement import CollectiveMeasurement as CollectiveMeasurement
    from ringside.real.questions.compute_measurement import ComputeMeasurement as ComputeMeasurement
    from ringside.real.questions.elastic_measurement import ElasticMeasurement as ElasticMeasurement
    from ringside.real.questions.program_run import ProgramRun as ProgramRun
    from ringside.real.questions.recording import ScriptRecording as ScriptRecording
    from ringside.real.questions.recording import record as record
    from ringside.real.questions.training_measurement import TrainingMeasurement as TrainingMeasurement
    from ringside.results import Cell as Cell
    from ringside.results import Result as Result
    from ringside.results import rows as rows
    from ringside.sim.algorithms import register as register
    from ringside.sim.algorithms import schedule as schedule
    from ringside.sim.calibration import Calibration as Calibration
    from ringside.sim.calibration import Fit as Fit
    from ringside.sim.calibration import read as calibration_of
    from ringside.sim.collective import Collective as Collective
    from ringside.sim.goodput.study import Goodput as Goodput
    from ringside.sim.libraries.library import Prediction as Prediction
    from ringside.sim.pick import Pick as Pick
    from ringside.sim.predict import predict as predict
    from ringside.sim.proof import prove as prove
    from ringside.sim.questions.algorithm_choice import AlgorithmChoice as AlgorithmChoice
    from ringside.sim.questions.cluster_facts import ClusterFacts as ClusterFacts
    from ringside.sim.questions.collective_time import CollectiveTime as CollectiveTime
    from ringside.sim.questions.coverage import Coverage as Coverage
    from ringside.sim.questions.expert_exchange import ExpertExchange as ExpertExchange
    from ringside.sim.questions.hang_cause import HangCause as HangCause
    from ringside.sim.questions.program_time import ProgramTime as ProgramTime
    from ringside.sim.questions.program_verdict import ProgramVerdict as ProgramVerdict
    from ringside.sim.record import Record as Record
    from ringside.sim.schedule import Schedule as Schedule
    from ringside.sim.training.ddp.buckets import Bucketing as Bucketing
    from ringside.sim.training.ddp.buckets import PowerSGD as PowerSGD
    from ringside.sim.training.ddp.job import DataParallel as DataParallel
    from ringside.sim.training.ddp.step import TrainingStep as TrainingStep
    from ringside.sim.training.step import ParallelStep as ParallelStep
    from ringside.studies.run import sweep as sweep
    from ringside.topologies import Topology as Topology
    from ringside.topologies import load as load
    from ringside.topologies import star as star
    from ringside.validation.beside import beside as beside
    from ringside.validation.calibrate import calibrate as calibrate
    from ringside.validation.compare import Compared as Compared
    from ringside.validation.compare import compare as compare
    from ringside.validation.pairs import PairsVerdict as PairsVerdict
    from ringside.validation.pairs import SlowNode as SlowNode
    from ringside.validation.pairs import SlowPair as SlowPair
    from ringside.validation.questions.comparison import Comparison as Comparison
    from ringside.validation.questions.comparison import Fitting as Fitting
    from ringside.validation.questions.ddp_measurement import DdpMeasurement as DdpMeasurement
    from ringside.validation.questions.emulated_validation import CollectiveValidation as CollectiveValidation
    from ringside.validation.questions.emulated_validation import DdpValidation as DdpValidation
    from ringside.validation.questions.emulated_validation import (
        DisturbanceValidation as DisturbanceValidation,
    )
    from ringside.validation.questions.emulated_validation import MemoryValidation as MemoryValidation
    from ringside.validation.questions.emulated_validation import RecordingValidation as RecordingValidation
    from ringside.validation.questions.emulated_validation import TrainingValidation as TrainingValidation
    from ringside.validation.questions.explanation import Explanation as Explanation
    from ringside.validation.questions.explanation import SlowNodes as SlowNodes
    from ringside.validation.questions.health import HealthGate as HealthGate
    from ringside.validation.questions.health import HealthyBandwidth as HealthyBandwidth
    from ringside.validation.questions.job_goodput import JobGoodput as JobGoodput
    from ringside.validation.questions.job_profile import JobProfile as JobProfile
    from ringside.validation.questions.layout_search import LayoutSearch as LayoutSearch
    from ringside.validation.questions.scorecard import Scorecard as Scorecard
    from ringside.validation.questions.step_time import StepTime as StepTime
    from ringside.validation.questions.step_time import train as train
    from ringside.validation.questions.what_if import WhatIf as WhatIf
    from ringside.validation.readers import records_of

    read = records_of
    read_calibration = calibration_of
    __version__: str
else:
    _HOME = {
        "AlgorithmChoice": "ringside.sim.questions.algorithm_choice",
        "Bucketing": "ringside.sim.training.ddp.buckets",
        "Calibration": "ringside.sim.calibration",
        "Cell": "ringside.results",
        "ClusterFacts": "ringside.sim.questions.cluster_facts",
        "Collective": "ringside.sim.collective",
        "CollectiveMeasurement": "ringside.real.questions.collective_measurement",
        "CollectiveTime": "ringside.sim.questions.collective_time",
        "CollectiveValidation": "ringside.validation.questions.emulated_validation",
        "Compared": "ringside.validation.compare",
        "Comparison": "ringside.validation.questions.comparison",
        "ComputeMeasurement": "ringside.real.questions.compute_measurement",
        "Coverage": "ringside.sim.questions.coverage",
        "DataParallel": "ringside.sim.training.ddp.job",
        "DdpMeasurement": "ringside.validation.questions.ddp_measurement",
        "DdpValidation": "ringside.validation.questions.emulated_validation",
        "DisturbanceValidation": "ringside.validation.questions.emulated_validation",
        "ElasticMeasurement": "ringside.real.questions.elastic_measurement",
        "ExpertExchange": "ringside.sim.questions.expert_exchange",
        "Explanation": "ringside.validation.questions.explanation",
        "Fit": "ringside.sim.calibration",
        "Fitting": "ringside.validation.questions.comparison",
        "Goodput": "ringside.sim.goodput.study",
        "HangCause": "ringside.sim.questions.hang_cause",
        "HealthGate": "ringside.validation.questions.health",
        "HealthyBandwidth": "ringside.validation.questions.health",
        "JobGoodput": "ringside.validation.questions.job_goodput",
        "JobProfile": "ringside.validation.questions.job_profile",
        "LayoutSearch": "ringside.validation.questions.layout_search",
        "PairsVerdict": "ringside.validation.pairs",
        "ParallelStep": "ringside.sim.training.step",
        "Pick": "ringside.sim.pick",
        "PowerSGD": "ringside.sim.training.ddp.buckets",
        "Prediction": "ringside.sim.libraries.library",
        "ProgramRun": "ringside.real.questions.program_run",
        "ProgramTime": "ringside.sim.questions.program_time",
        "ProgramVerdict": "ringside.sim.questions.program_verdict",
        "Record": "ringside.sim.record",
        "Result": "ringside.results",
        "Schedule": "ringside.sim.schedule",
        "SlowNode": "ringside.validation.pairs",
        "ScriptRecording": "ringside.real.questions.recording",
        "Scorecard": "ringside.validation.questions.scorecard",
        "SlowNodes": "ringside.validation.questions.explanation",
        "SlowPair": "ringside.validation.pairs",
        "StepTime": "ringside.validation.questions.step_time",
        "Topology": "ringside.topologies",
        "TrainingMeasurement": "ringside.real.questions.training_measurement",
        "TrainingStep": "ringside.sim.training.ddp.step",
        "MemoryValidation": "ringside.validation.questions.emulated_validation",
        "RecordingValidation": "ringside.validation.questions.emulated_validation",
        "TrainingValidation": "ringside.validation.questions.emulated_validation",
        "WhatIf": "ringside.validation.questions.what_if",
        "beside": "ringside.validation.beside",
        "calibrate": "ringside.validation.calibrate",
        "compare": "ringside.validation.compare",
        "load": "ringside.topologies",
        "predict": "ringside.sim.predict",
        "prove": "ringside.sim.proof",
        "read_calibration": "ringside.sim.calibration:read",
        "read": "ringside.validation.readers:records_of",
        "record": "ringside.real.questions.recording",
        "register": "ringside.sim.algorithms",
        "rows": "ringside.results",
        "schedule": "ringside.sim.algorithms",
        "star": "ringside.topologies",
        "sweep": "ringside.studies.run",
        "train": "ringside.validation.questions.step_time",
    }

    __all__ = ["__version__", *_HOME]

    def __getattr__(name):
        """Load a public name, and keep it."""
        if name == "__version__":
            from importlib.metadata import version

            value = version("ringside-sim")
        elif name in _HOME:
            from importlib import import_module

            module, _, original = _HOME[name].partition(":")
            if ".questions." in module:
                import_module("ringside.options")
            value = getattr(import_module(module), original or name)
        else:
            raise AttributeError(f"module 'ringside' has no attribute {name!r}; it has {', '.join(__all__)}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})

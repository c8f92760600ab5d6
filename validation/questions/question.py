"""A training as a question, by model and cluster."""

from typing import Any

from ringside.validation.questions.step_time import StepTime

Question = StepTime


def question(model: str, cluster: str, **options: Any) -> StepTime:
    """Return the question of these options of ``ringside train``; those that are None have their defaults."""
    given = {name: value for name, value in options.items() if value is not None or name == "calibration"}
    return StepTime(model=model, cluster=cluster, **given)

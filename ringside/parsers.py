"""Register the parsers of fields that ``sim`` itself cannot parse."""

from ringside.sim.questions.question import PARSERS

PARSERS["anchor"] = "ringside.validation.nccl.anchor:read_anchor"

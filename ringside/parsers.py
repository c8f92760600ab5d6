"""Which room reads what fields are written as, where ``sim`` itself cannot."""

from ringside.sim.questions.question import PARSERS

PARSERS["anchor"] = "ringside.validation.measured.anchor:read_anchor"

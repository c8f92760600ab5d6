"""``ringside whatif``: a prediction beside those of changed clusters or algorithms, with their limits."""

from typing import Any

from ringside import console, options
from ringside.options import asks
from ringside.topologies.units import format_size
from ringside.validation.questions.what_if import WhatIf

HEADS = (
    *(("what if", ""), ("time", "(ms)"), ("as is = 1", ""), ("limited by", ""), ("for", "(%)")),
    *(("busiest", ""), ("busy", "(%)"), ("by", ""), ("ranks", "")),
)


@asks(WhatIf)
def command(question: WhatIf, all_columns: options.All = False, json: options.Json = False) -> None:
    """Predict the effect of another network, more nodes or another algorithm, and the new limit."""
    with console.simulating("simulating", 1) as bar:
        answer = question.ask()
        bar.done("simulated")
    if json:
        console.print_json("whatif", {"inputs": answer.inputs, "note": answer.basis, "rows": answer.rows})
        return
    where = " ".join([question.cluster, *(f"{key}={value}" for key, value in question.settings.items())])
    size = format_size(question.size)
    subject = f"{question.what} of {size}" if question.is_collective else f"a step of {question.what}"
    console.print_answer(
        answer.headline, console.TextTable(HEADS, list(map(_cells, answer.rows))),
        rests_on=answer.rests_on, notes=[f"{subject} on {where}", *answer.notes],
    )  # fmt: skip


def _cells(row: dict[str, Any]) -> tuple[console.Cell, ...]:
    return (
        *(row["change"] or "as_is", row["time_s"] * 1e3),
        *("-" if row["times"] is None else f"{row['times']:.4g}", row["limit"].replace(" ", "_")),
        *(row["share"] * 100, row["busiest"].replace(" ", "_") or "-", row["busy"] * 100),
        *(row["by"], row["ranks"]),
    )

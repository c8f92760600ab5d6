"""``ringside experts``: dispatch and combine of experts' tokens by each library, and which is the fastest."""

from ringside import console, options
from ringside.options import asks
from ringside.sim.questions.expert_exchange import ExpertExchange

PHASES = ("dispatch", "combine", "prepare")

HEADS = (
    ("tokens", ""), ("by", ""), ("wins", ""), ("total", "(us)"), ("80 %", "(us)"),
    *((name, "(us)") for name in PHASES), ("NVLink", "(MB)"), ("network", "(MB)"),
)  # fmt: skip


@asks(ExpertExchange)
def command(question: ExpertExchange, all_columns: options.All = False, json: options.Json = False) -> None:
    """Predict dispatch and combine of experts' tokens by each library, and which is the fastest."""
    answer = question.ask()
    if json:
        content = {"inputs": answer.inputs, "notes": list(answer.notes), "rows": answer.rows}
        console.print_json("experts", content | {"refused": dict(answer.refused)})
        return
    rows = [
        (
            row["tokens"], row["by"], "yes" if row["wins"] else "", f"{row['total_s'] * 1e6:.1f}",
            f"{row['total_lo_s'] * 1e6:.0f}-{row['total_hi_s'] * 1e6:.0f}",
            *(f"{row[f'{name}_s'] * 1e6:.1f}" for name in PHASES),
            *(f"{row[name] / 1e6:.2f}" for name in ("nvlink_bytes", "network_bytes")),
        )
        for row in answer.rows
    ]  # fmt: skip
    notes = [console.one_line_of(answer.inputs), *answer.notes]
    console.print_answer(
        answer.headline, console.TextTable(HEADS, rows), rests_on=answer.rests_on, notes=notes
    )

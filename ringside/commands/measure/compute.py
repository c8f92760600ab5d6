"""``ringside measure compute``: rates of products, attention and memory of this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringside import console, options
from ringside.options import asks
from ringside.real.questions.compute_measurement import ComputeMeasurement, ComputeMeasurements
from ringside.sim.compute.grids import RatesFile
from ringside.sim.record import COMPUTE_SCHEMA, schema_of
from ringside.topologies.disk import check_outputs, held, is_stream, write_file
from ringside.topologies.units import format_size

if TYPE_CHECKING:
    from ringside.real.compute.measure import MeasuredRate

HEADS = (("kind", ""), ("precision", ""), ("sizes", ""), ("rate", ""), ("unit", ""))


@asks(ComputeMeasurement)
def command(
    question: ComputeMeasurement,
    output: Annotated[Path, typer.Option("-o", metavar="FILE.json", help="Write the rates to this file.")],
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Measure rates of products, attention and memory of this CPU or GPU."""
    check_outputs((output,))
    grows = not is_stream(output)
    if grows and output.exists() and schema_of(output) != COMPUTE_SCHEMA:
        raise ValueError(f"{output} contains no such rates; write another name after -o")
    with held(output), console.progress("starting", question.job().points) as bar:

        def keep(rates: RatesFile, point: "MeasuredRate") -> None:
            if grows:  # the file always contains the rates so far; a device or a pipe gets all at the end
                write_file(output, rates.dumps())
            bar.done(f"{point.kind} {_sizes(point)}")

        answer = question.ask(on_rates=keep)
    if not grows:
        write_file(output, answer.rates.dumps())
    if json:
        content = {"inputs": answer.inputs, "output": str(output), "device": answer.rates.device}
        console.print_json("measure_compute", {**content, "rows": answer.rows})
    else:
        _print(answer, output)


def _sizes(point: "MeasuredRate") -> str:
    if point.kind == "streaming":
        return format_size(point.sizes[0])
    return " x ".join(map(str, point.sizes))


def _print(answer: ComputeMeasurements, output: Path) -> None:
    legend = "products as m x n x k; attention as heads x sequence x head size, causal, forward"
    rows: list[tuple[console.Cell, ...]] = [
        (
            *(point.kind, point.precision or "-", _sizes(point), point.rate / 1e9),
            "GB/s" if point.kind == "streaming" else "GFLOP/s",
        )
        for point in answer.points
    ]
    headline = f"{answer.headline}; all rates in {output}"
    console.print_answer(headline, console.TextTable(HEADS, rows), rests_on=[legend])

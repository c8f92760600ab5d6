"""``ringside calibrate``: fit a calibration file to measurements."""

from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.options import asks
from ringside.topologies.disk import check_outputs
from ringside.validation.questions.comparison import Fitting


@asks(Fitting)
def command(
    question: Fitting,
    output: Annotated[Path, typer.Option("-o", metavar="FILE.yaml", help="Write the calibration here.")],
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Fit a cluster's parameters to measurements."""
    check_outputs([output], inputs=[*question.files, question.cluster])
    answer = console.ask(question, "fitting")
    answer.calibration.write(output)
    if json:
        content = {"inputs": answer.inputs, "output": str(output), "notes": list(answer.notes)}
        console.print_json("calibrate", content | answer.calibration.content())
        return
    from ringside.validation.calibrate import report

    lines = [line for line in report(answer.calibration).splitlines() if line]
    notes = answer.notes
    console.print_answer(f"{answer.headline}, in {output}", *lines, rests_on=answer.rests_on, notes=notes)

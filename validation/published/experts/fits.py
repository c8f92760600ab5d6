"""The shipped fits of experts' exchanges, of all published rows.

``python -m ringside.validation.published.experts.fits`` writes them.
"""

from ringside.sim.libraries.experts.measured import SHIPPED, ExpertModel
from ringside.validation.experts.model import fit_model
from ringside.validation.experts.splits import growth
from ringside.validation.published.experts import exchange_rows


def fits() -> ExpertModel:
    """Return the model of all rows."""
    return fit_model(exchange_rows(), growth())


if __name__ == "__main__":
    fits().write()
    print(SHIPPED.name)

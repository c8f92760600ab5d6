"""Models against measurements: calibration, comparison, published results and their scorecards."""

if __name__ == "validation":
    raise ImportError(
        "import ringside.validation; the folder validation of a checkout is part of that package"
    )

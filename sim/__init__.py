"""Predictions: schedules and their proof, engines, networks, libraries, programs, trainings."""

if __name__ == "sim":
    raise ImportError("import ringside.sim; the folder sim of a checkout is part of that package")

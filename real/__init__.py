"""Real execution and measurement: collectives, programs and trainings under torchrun and mpirun."""

if __name__ == "real":
    raise ImportError("import ringside.real; the folder real of a checkout is part of that package")

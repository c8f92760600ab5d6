"""``python -m ringside.validation.published.training.zero_bubble`` compares with the paper's figures."""

from ringside.validation.published.training.zero_bubble import TABLE, bubble, profiled
from ringside.validation.scorecard.judged import lines, result


def main() -> None:
    """Print a line per row, then the bubbles."""
    print("bubbles, calculated by the authors (table 5) and simulated with messages that block no rank")
    for row in profiled():
        parts = [
            f"{name} {row.bubbles[name]:.4f} {bubble(name, row):.4f}" for name in ("1F1B", "ZB-H1", "ZB-H2")
        ]
        print(
            f"{row.model:>6} {row.ranks:>3} ranks {row.micro_batches:>4} micro-batches | " + " | ".join(parts)
        )
    print("\n".join(lines(result(TABLE))))


if __name__ == "__main__":
    main()

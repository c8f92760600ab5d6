"""The command ``ringside``: what goes wrong ends in one message and an exit code, not in a traceback."""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line; exit 2 for what the user can put right, 1 for what a run could not do."""
    from ringside.cli import app

    signal.signal(signal.SIGINT, _interrupted)
    try:
        app()
    except BrokenPipeError:
        # whoever read our output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except ModuleNotFoundError as error:
        _complain(ValueError(f"{error.name} is not installed; write pip install 'ringside[all]'"))
        sys.exit(2)
    except (ValueError, OSError) as error:
        _complain(error)
        sys.exit(2)
    except (RuntimeError, ArithmeticError) as error:
        _complain(error)
        sys.exit(1)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Leave by the way that cleans up; the command-line library would swallow a KeyboardInterrupt."""
    print("ringside: interrupted; what was finished before is kept", file=sys.stderr)
    sys.exit(128 + number)


def _complain(error: Exception) -> None:
    for line in str(error).splitlines() or [type(error).__name__]:
        print(f"ringside: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()

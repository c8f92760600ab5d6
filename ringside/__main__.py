"""The command ``ringside``: what goes wrong ends in one message and an exit code, not in a traceback."""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType


def main() -> None:
    """Run the command line; exit 2 for what the user can put right, 1 for what a run could not do."""
    from ringside.cli import app

    signal.signal(signal.SIGINT, _interrupted)
    try:
        try:
            app()
        finally:
            if sys.stdout:
                sys.stdout.flush()  # while what goes wrong with it can still be said
    except BrokenPipeError:
        # whoever read our output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except ModuleNotFoundError as error:
        _complain(f"{error.name} is not installed; write pip install 'ringside[all]'")
        sys.exit(2)
    except (ValueError, OSError) as error:
        _complain(str(error))
        sys.exit(2)
    except (RuntimeError, ArithmeticError) as error:
        _complain(str(error) or type(error).__name__)
        sys.exit(1)
    except MemoryError:
        _complain("this machine has not the memory; write a smaller size or fewer ranks")
        sys.exit(1)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Leave by the way that cleans up; the command-line library would swallow a KeyboardInterrupt."""
    print("ringside: interrupted; what was finished before is kept", file=sys.stderr)
    sys.exit(128 + number)


def _complain(text: str) -> None:
    with suppress(OSError):  # where even this cannot be written nobody can be told
        for line in text.splitlines():
            print(f"ringside: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""The command ``ringside``: what goes wrong ends in one message and an exit code, not in a traceback."""

import os
import signal
import sys
import traceback
from contextlib import suppress
from types import FrameType

from ringside.errors import exit_code, message


def main() -> None:
    """Run the command line; an error ends as `ringside.errors` says.

    With RINGSIDE_DEBUG=1 in the environment its traceback is shown before its message.
    """
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
    except Exception as error:
        if os.environ.get("RINGSIDE_DEBUG") == "1":
            traceback.print_exception(error)
        _complain(message(error))
        sys.exit(exit_code(error))


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

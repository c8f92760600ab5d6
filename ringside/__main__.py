"""``python -m ringside`` is the command ``ringside``."""

from ringside.cli import main

if __name__ == "__main__":
    main()

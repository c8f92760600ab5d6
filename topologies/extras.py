"""How to install optional dependencies."""


def install(extra: str) -> str:
    """Return the command that installs an extra; on PyPI the distribution is ``ringside-sim``."""
    return f"write pip install 'ringside-sim[{extra}]', or in a checkout pip install -e '.[{extra}]'"

"""How what is optional comes onto a machine."""


def install(extra: str) -> str:
    """What to write for an extra.

    Ringside is installed from its checkout; of its name package indices have somebody else's.
    """
    return f"write pip install -e '.[{extra}]' in Ringside's checkout"

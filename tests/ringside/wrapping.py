"""Lines of the terminal without their wrapping."""

import re

from ringside.console import WIDTH


def unwrapped(text):
    """Return the text with wrapped lines joined."""
    lines, last = [], ""
    for line in text.splitlines():
        words = line.removeprefix("#").split()
        begun = re.match(r"# *|(?=\S)", lines[-1]) if lines else None
        onward = "" if begun is None else f"#  {begun[0][1:]}" if begun[0] else "    "
        if (
            words
            and onward
            and line == onward + " ".join(words)
            and len(last) <= WIDTH < len(f"{last} {words[0]}")
        ):
            lines[-1] += " " + " ".join(words)
        else:
            lines.append(line)
        last = line
    return "".join(f"{line}\n" for line in lines)

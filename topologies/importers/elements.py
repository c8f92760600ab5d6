"""The elements of an XML file, each with its line, so that a complaint can say where.

By the standard library's expat: ElementTree keeps no lines, and for lxml, which does, the core would need
one more compiled library, and these same questions on top of its elements.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

MAX_DEPTH = 64
"""Elements inside one another; a machine nests a dozen."""


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of file: what a complaint calls it, what it advises, and the error that it is."""

    what: str
    advice: str
    error: type[ValueError]

    def complaint(self, line: int, message: str) -> ValueError:
        """The error for something on a line."""
        return self.error(f"{self.what}, line {line}: {message}; {self.advice}")


@dataclass(eq=False, slots=True)
class Element:
    """One element; its questions raise the source's error where the answer is missing or no good."""

    source: Source
    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)

    def complaint(self, message: str) -> ValueError:
        """The error for something about this element."""
        return self.source.complaint(self.line, message)

    def below(self, tag: str) -> Iterator["Element"]:
        """Every element of that tag at any depth below this one, in the file's order."""
        for child in self.children:
            if child.tag == tag:
                yield child
            yield from child.below(tag)

    def text(self, name: str) -> str:
        """An attribute that must be there."""
        if name not in self.attributes:
            raise self.complaint(f"{self.tag} has no {name}")
        return self.attributes[name]

    def number(self, name: str) -> float:
        """An attribute that must be a number, 0 or more."""
        text = self.text(name)
        try:
            number = float(text)
        except ValueError:
            raise self.complaint(f"{name} is {text!r}, not a number") from None
        if not 0 <= number < float("inf"):
            raise self.complaint(f"{name} is {text!r}; allowed: 0 or more")
        return number

    def count(self, name: str) -> int:
        """An attribute that must be a whole number, 0 or more."""
        number = self.number(name)
        if number != int(number):
            raise self.complaint(f"{name} is {self.attributes[name]!r}, not a whole number")
        return int(number)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """An attribute that must be one of a few words."""
        if self.text(name) not in allowed:
            raise self.complaint(f"{name} is {self.text(name)!r}; allowed: {', '.join(allowed)}")
        return self.text(name)


def parse(text: str, source: Source, root: str) -> Element:
    """The root element of a text, which must be called ``root``."""
    parser = expat.ParserCreate()
    open_elements = [Element(source, "", {}, 0)]

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(source, tag, attributes, parser.CurrentLineNumber)
        if len(open_elements) > MAX_DEPTH:
            raise element.complaint(f"more than {MAX_DEPTH} elements inside one another")
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(tag: str) -> None:
        open_elements.pop()

    def doctype(*_: object) -> None:
        # what it may declare are entities, which can grow beyond all measure
        raise source.complaint(parser.CurrentLineNumber, "a document type, which no such file needs")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise source.complaint(error.lineno, f"not XML: {expat.errors.messages[error.code]}") from None
    found = open_elements[0].children[0]
    if found.tag != root:
        raise found.complaint(f"the root is {found.tag!r}, not {root!r}")
    return found

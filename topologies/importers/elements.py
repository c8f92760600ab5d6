"""The elements of an XML file, each with its line number for error messages.

It uses the standard library's expat: ElementTree keeps no line numbers, and lxml, which does, would be one
more compiled dependency.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

MAX_DEPTH = 64
"""Limit on nested elements; a machine nests a dozen."""


@dataclass(frozen=True, slots=True)
class XmlSource:
    """A kind of file: its name in errors, the advice that they give, and their class."""

    what: str
    advice: str
    error: type[ValueError]

    def complaint(self, line: int, message: str) -> ValueError:
        """Return an error about a line."""
        return self.error(f"{self.what}, line {line}: {message}; {self.advice}")


@dataclass(eq=False, slots=True)
class Element:
    """One element; its accessors raise the source's error if an attribute is missing or invalid."""

    source: XmlSource
    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)

    def complaint(self, message: str) -> ValueError:
        """Return an error about this element."""
        return self.source.complaint(self.line, message)

    def below(self, tag: str) -> Iterator["Element"]:
        """Yield every element with that tag at any depth below this one, in the file's order."""
        for child in self.children:
            if child.tag == tag:
                yield child
            yield from child.below(tag)

    def text(self, name: str) -> str:
        """Return an attribute that must be present."""
        if name not in self.attributes:
            raise self.complaint(f"{self.tag} has no {name}")
        return self.attributes[name]

    def number(self, name: str) -> float:
        """Return an attribute that must be a number, 0 or more."""
        text = self.text(name)
        try:
            number = float(text)
        except ValueError:
            raise self.complaint(f"{name} is {text!r}, not a number") from None
        if not 0 <= number < float("inf"):
            raise self.complaint(f"{name} is {text!r}; allowed: 0 or more")
        return number

    def count(self, name: str) -> int:
        """Return an attribute that must be a whole number, 0 or more."""
        number = self.number(name)
        if number != int(number):
            raise self.complaint(f"{name} is {self.attributes[name]!r}, not a whole number")
        return int(number)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return an attribute that must be one of the ``allowed``."""
        if self.text(name) not in allowed:
            raise self.complaint(f"{name} is {self.text(name)!r}; allowed: {', '.join(allowed)}")
        return self.text(name)


def parse(text: str, source: XmlSource, root: str) -> Element:
    """Parse a text into its root element, whose tag must be ``root``."""
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
        # it can declare entities, whose expansion is unbounded
        raise source.complaint(parser.CurrentLineNumber, "a document type, which no such file needs")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise source.complaint(error.lineno, f"not XML: {expat.errors.messages[error.code]}") from None
    element = open_elements[0].children[0]
    if element.tag != root:
        raise element.complaint(f"the root is {element.tag!r}, not {root!r}")
    return element

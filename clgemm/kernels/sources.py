"""The source text of each kernel, its parameters, and a hash of what its compiler sees.

The hash is over tokens: a changed comment or layout leaves it as it is. Pure.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from importlib import resources

from clgemm.core.config import KernelConfig

__all__ = [
    "BUFFER",
    "OPTIONS",
    "files_of",
    "parameter_types",
    "sources_hash",
    "text_of",
    "tokens",
    "used_by",
]

# Of every build. The compiler may make one instruction of a * b + c; nothing else is relaxed.
OPTIONS = ("-cl-mad-enable",)

BUFFER = "buffer"  # the type of a parameter that is a pointer

WORD = re.compile(r"\w+")
CONTINUED = re.compile(r"\\[ \t]*\n")
# What lies before a token, and the token or end of a line: C11, section 6.4. The longest punctuator
# comes first.
TOKEN = re.compile(
    r"""
    ( (?: [^\S\n] | //[^\n]* | /\*.*?\*/ )* )
    ( \n
    | [^\W\d]\w*
    | " (?: \\. | [^"\\\n] )* "
    | ' (?: \\. | [^'\\\n] )* '
    | \.?\d (?: [eEpP][-+] | [\w.] )*
    | \.\.\. | <<= | >>= | -> | \+\+ | -- | << | >> | && | \|\| | [-+*/%&^|<>=!]= | \#\#
    | .
    )
    """,
    re.VERBOSE | re.DOTALL,
)


def files_of(kind: type[KernelConfig]) -> tuple[str, ...]:
    """Return the names of the files that a kernel is compiled from, in order."""
    return ("common/prelude.cl", *kind.includes, kind.source)


def text_of(kind: type[KernelConfig]) -> str:
    """Return the source of a kernel as its compiler gets it."""
    return "\n".join(map(_read, files_of(kind)))


@functools.cache
def _read(name: str) -> str:
    folder = resources.files("clgemm").joinpath("kernels")
    return folder.joinpath(name).read_text(encoding="utf-8")


def parameter_types(kind: type[KernelConfig]) -> Mapping[str, str]:
    """Return the type of each parameter of a kernel, by name: `BUFFER` or a type of OpenCL C.

    They are read from the kernel's declaration. A macro in it that is empty for some configs is
    taken as it is for the others. No comment may stand in the declaration.
    """
    return _parameter_types(files_of(kind), kind.entry)


@functools.cache
def _parameter_types(files: tuple[str, ...], entry: str) -> Mapping[str, str]:
    # Without regular expressions over the whole text: they would take a millisecond.
    text = "\n".join(map(_read, files)).replace("\\\n", " ")
    declaration = text.partition(f"void {entry}(")[2].partition(")")[0]
    for macro in {word for word in WORD.findall(declaration) if word.isupper()}:
        definitions = (rest.partition("\n")[0] for rest in text.split(f"#define {macro} ")[1:])
        declaration = declaration.replace(macro, next(definitions))
    types: dict[str, str] = {}
    for parameter in declaration.split(","):
        *words, name = WORD.findall(parameter)
        types[name] = BUFFER if "*" in parameter else words[-1]
    return types


def tokens(source: str) -> Iterator[str]:
    r"""Yield the preprocessing tokens of OpenCL C, without comments and whitespace.

    A directive begins with ``"\n#"`` and ends with ``"\n"``: it is a line, and other lines are not.
    In the definition of a macro, ``" "`` tells ``F (x)``, a macro without parameters, from
    ``F(x)``. The words of an ``#error`` are left out: no program that compiles depends on them.
    """
    source = CONTINUED.sub("", source.replace("\r\n", "\n"))
    directive: list[str] | None = None  # what the line has so far
    starts = True  # a line
    for before, token in TOKEN.findall(source + "\n"):
        if token == "\n":
            if directive is not None:
                yield "\n"
            directive, starts = None, True
        elif starts and token == "#":
            directive, starts = [], False
            yield "\n#"
        else:
            if directive is not None:
                if directive[:1] == ["error"]:
                    continue
                if token == "(" and before and len(directive) == 2 and directive[0] == "define":
                    yield " "
                directive.append(token)
            starts = False
            yield token


def used_by(*kinds: type[KernelConfig]) -> frozenset[type[KernelConfig]]:
    """Return the configs of every kernel that products of these families can launch."""
    found: set[type[KernelConfig]] = set()
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            waiting += kind.companions
    return frozenset(found)


def sources_hash(*kinds: type[KernelConfig]) -> str:
    """Return 16 hexadecimal digits for all that these families' products are compiled from.

    Macros and the version of OpenCL C are not in it: they come from the fields of a config, which
    records and verdicts name. A new macro comes with the source that reads it.
    """
    parts = sorted(_digest(text_of(kind), kind.options) for kind in used_by(*kinds))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@functools.cache
def _digest(source: str, options: tuple[str, ...]) -> str:
    seen = "\0".join((*OPTIONS, *options, *tokens(source)))
    return hashlib.sha256(seen.encode()).hexdigest()

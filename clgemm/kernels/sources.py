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

# For every build. The compiler may contract a * b + c; nothing else is relaxed.
OPTIONS = ("-cl-mad-enable",)

BUFFER = "buffer"  # the type of a parameter that is a pointer

WORD = re.compile(r"\w+")
CONTINUED = re.compile(r"\\[ \t]*\n")
# The space and comments before a token, and the token or the end of a line (C11, section 6.4).
# Longer punctuators come first.
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

    The types are read from the kernel's declaration, which may not contain comments. A macro in it
    may be empty for some configs; its definition for the others counts.
    """
    return _parameter_types(files_of(kind), kind.entry)


@functools.cache
def _parameter_types(files: tuple[str, ...], entry: str) -> Mapping[str, str]:
    # Regular expressions over the whole text would take a millisecond.
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

    A directive begins with ``"\n#"`` and ends with ``"\n"``. The ends of other lines are left out.
    In the definition of a macro, ``" "`` tells ``F (x)``, a macro without parameters, from
    ``F(x)``. The words of an ``#error`` are left out: no program that compiles depends on them.
    """
    source = CONTINUED.sub("", source.replace("\r\n", "\n"))
    directive: list[str] | None = None  # its tokens so far
    starts_line = True
    for before, token in TOKEN.findall(source + "\n"):
        if token == "\n":
            if directive is not None:
                yield "\n"
            directive, starts_line = None, True
        elif starts_line and token == "#":
            directive, starts_line = [], False
            yield "\n#"
        else:
            if directive is not None:
                if directive[:1] == ["error"]:
                    continue
                if token == "(" and before and len(directive) == 2 and directive[0] == "define":
                    yield " "
                directive.append(token)
            starts_line = False
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
    """Return a hash, 16 hexadecimal digits, of all sources that these families are compiled from.

    It does not cover macros and the version of OpenCL C. They follow from the fields of a config,
    which records and verdicts hold. A new macro changes the source that reads it.
    """
    parts = sorted(_digest(text_of(kind), kind.options) for kind in used_by(*kinds))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@functools.cache
def _digest(source: str, options: tuple[str, ...]) -> str:
    seen = "\0".join((*OPTIONS, *options, *tokens(source)))
    return hashlib.sha256(seen.encode()).hexdigest()

"""Parses commands without running them: lists of words as JSON on stdin, what is wrong on stdout.

``tests/test_docs.py`` starts it in a process of its own. Each script or module runs up to the point
where its arguments are parsed.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import runpy
import sys
import traceback
from typing import Any


class Parsed(BaseException):
    """The arguments are right."""


_parse = argparse.ArgumentParser.parse_args


def _parse_and_stop(*arguments: Any, **keywords: Any) -> None:
    _parse(*arguments, **keywords)
    raise Parsed


def problem(words: list[str]) -> str:
    """Return what is wrong with a command; "" if nothing is, or a package for it is missing."""
    try:
        if words[0] == "-m":
            if importlib.util.find_spec(words[1]) is None:
                return ""
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    except Parsed:
        return ""
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != "clgemm":
            return ""
        return traceback.format_exc()
    except SystemExit as error:
        return f"exit code {error.code}"
    except Exception:
        return traceback.format_exc()
    return "it ran and parsed nothing"


if __name__ == "__main__":
    argparse.ArgumentParser.parse_args = _parse_and_stop
    whole = functools.partialmethod(argparse.ArgumentParser.__init__, allow_abbrev=False)
    argparse.ArgumentParser.__init__ = whole  # a page writes options in full
    commands = json.load(sys.stdin)
    print(json.dumps({" ".join(words): said for words in commands if (said := problem(words))}))

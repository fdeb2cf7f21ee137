"""``foredraft new``: writes a package with a drafter, a verifier or a policy, ready to install."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from ..errors import ConfigError, InputError
from .options import OneLineParser

KINDS = ("drafter", "verifier", "policy")
LONGEST = 40
TEXT = """\
Writes an installable package into the folder foredraft-NAME: the entry point, a config, one class
that works as it stands, tests that put it through the conformance kit, and a README."""
USE = {
    "drafter": "drafter={name}",
    "verifier": "drafter=ngram verifier={name} sampling.temperature=1",
    "policy": "drafter=ngram policy={name}",
}


def new(argv: list[str]) -> int:
    """Runs the command."""
    parser = OneLineParser("new", TEXT)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("name", metavar="NAME", help="what a config will call it")
    parser.add_argument("--dir", type=Path, default=Path(), help="where to put the folder")
    found = parser.parse_args(argv)
    words = names(found.kind, found.name)
    folder = found.dir.expanduser() / words["distribution"]
    write(folder, rendered(words))
    print(f"wrote {folder}; next:\n")
    print(
        f"  cd {shlex.quote(str(folder))}\n  pip install -e '.[dev]'\n  foredraft check {found.kind}={found.name}"
    )
    print(f"  pytest\n  foredraft generate {words['use']} prompt='Why is the sky blue?'\n")
    print(f"then put your own maths into {words['package']}/{found.kind}.py")
    return 0


def names(kind: str, name: str) -> dict[str, str]:
    """What the templates are filled with; refuses a name that could not be used."""
    check_name(kind, name)
    return {
        "kind": kind,
        "name": name,
        "package": f"foredraft_{name}",
        "distribution": f"foredraft-{name.replace('_', '-')}",
        "title": "".join(word.capitalize() for word in name.split("_")),
        "use": USE[kind].format(name=name),
    }


def check_name(kind: str, name: str) -> None:
    """Refuses a name that is no name, or that something installed has."""
    from ..plugins import registry
    from ..plugins.checks import RESERVED

    good = re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) and len(name) <= LONGEST
    if not good or keyword.iskeyword(name) or name in RESERVED:
        raise ConfigError(
            f"{name!r} is not a possible name; it must be lower case letters, digits and single "
            f"underscores, begin with a letter, have at most {LONGEST} signs, and be no word of "
            "Python or YAML."
        )
    taken = {offer.name: str(offer.source) for offer in registry().offers(kind)}
    for plugin in registry().plugins:
        taken |= {preset: str(plugin.source) for group, preset in plugin.presets if group == kind}
    if (resources.files("foredraft.conf") / kind / f"{name}.yaml").is_file():
        taken[name] = "a preset that ships with Foredraft"
    if importlib.util.find_spec(f"foredraft_{name}") is not None:
        taken.setdefault(name, f"the installed package foredraft_{name}")
    if name in taken:
        raise ConfigError(f"the name {name!r} is taken by {taken[name]}; choose another.")


def rendered(words: dict[str, str]) -> dict[str, str]:
    """The files of the package: their texts by their paths inside it."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    scaffold = resources.files("foredraft.framework") / "scaffold"
    found: dict[str, str] = {}
    for folder in ("common", words["kind"]):
        for path, template in _templates(scaffold / folder):
            first, slash, rest = path.partition("/")
            path = words["package"] + slash + rest if first == "package" else path
            text = template.read_text("utf-8")
            found[path] = environment.from_string(text).render(words)
    return found


def _templates(folder: Traversable, path: str = "") -> Iterator[tuple[str, Traversable]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from _templates(item, f"{path}{item.name}/")
        elif item.name.endswith(".j2"):
            yield path + item.name.removesuffix(".j2"), item


def write(folder: Path, files: dict[str, str]) -> None:
    """Writes the files beside the folder's place and moves them there whole."""
    if not folder.parent.is_dir():
        raise InputError(f"--dir {folder.parent} is no folder.")
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} is there already; it is left as it is.")
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        draft.mkdir()
        for path, text in files.items():
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            (draft / path).write_text(text, "utf-8")
        draft.rename(folder)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)

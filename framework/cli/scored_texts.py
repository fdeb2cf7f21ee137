"""The texts that drafters are scored on: recorded answers, or answers made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ForedraftError, InputError
from .prompts import FORMS, Item, read_items, read_object, read_text
from .walk_arguments import batches, requests

if TYPE_CHECKING:
    from ..engine import Engine
    from ..traces.scoring import Text
    from .walk_arguments import Words


def texts_of(engine: Engine, words: Words) -> list[Text]:
    """Answers from ``answers=FILE``, or those of the target to the prompts."""
    path = words.own.get("answers")
    if path is None:
        return _made(engine, read_items(words.first()))
    if "prompt" in words.rest.texts or "prompts" in words.rest.texts:
        raise InputError("answers= has its prompts in it; drop prompt= and prompts=.")
    found = [
        _recorded(engine, read_object(line, where), where)
        for number, line in enumerate(read_text(path, "answers").split("\n"), 1)
        if line.strip()
        for where in [f"line {number} of {path}"]
    ]
    if not found:
        raise InputError(f"answers={path} holds no answer.")
    return found


def _made(engine: Engine, items: list[Item]) -> list[Text]:
    """Plain decoding of the prompts, by the target alone."""
    from dataclasses import replace

    from ...drafters.none import NoDrafter
    from ..decoding import decode
    from ..requests import Answer
    from ..traces.scoring import Text

    plain = replace(engine.parts, drafter=NoDrafter())
    answers = [Answer(request) for request in requests(engine, items)]
    for batch in batches(answers, engine.defaults.batch_size):
        for _ in decode(plain, list(batch)):
            pass
    return [
        Text(answer.request.prompt, answer.token_ids, {"index": item.first, **item.about})
        for answer, item in zip(answers, items, strict=True)
    ]


def _recorded(engine: Engine, value: dict[str, Any], where: str) -> Text:
    """A line that ``foredraft generate`` wrote."""
    from ..traces.scoring import Text

    form = next((name for name in FORMS if name in value), None)
    ids, index = value.get("token_ids"), value.get("index", 0)
    if form is None or value.get("turn", 0) != 0:
        raise InputError(f"{where} is no answer to a first turn; it has to be one.")
    if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
        raise InputError(f"{where} has no token_ids; foredraft generate writes them with out=FILE.")
    try:
        prompt = engine.request(value[form]).prompt
    except ForedraftError as error:
        raise InputError(f"{where}: {error}") from None
    vocab = engine.parts.target.vocab_size
    if len(prompt) != value.get("prompt_tokens") or not all(0 <= token < vocab for token in ids):
        raise InputError(
            f"{where} was made with another target; its tokens are not those of this one."
        )
    return Text(prompt, ids, {"index": index, "id": value.get("id")})

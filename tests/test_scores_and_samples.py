"""Log-probabilities, ranks and several samples: the same whatever was drafted."""

from __future__ import annotations

import pytest
import torch
from helpers import law_p_value, make_engine, model_of, noisy_copy, one_token_law, target_of

from foredraft.drafters.builtin import NgramConfig, PromptLookupConfig
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.ngram import Ngram
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework.engine import Engine
from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.params import SamplingParams
from foredraft.framework.requests import Answer
from foredraft.framework.sampling import Sampler

PROMPT = [5, 9, 33, 2, 9, 33]
SAMPLED = SamplingParams(temperature=0.7, top_k=8)


def engine(gamma: int) -> Engine:
    drafter = CausalLMDrafter(noisy_copy(model_of("llama")), target_of("llama"))
    return make_engine(target_of("llama"), drafter, gamma)


def rows_of(answer: Answer) -> torch.Tensor:
    """The target's logits behind every prefix of prompt and answer, from one plain forward."""
    ids = torch.tensor([[*answer.request.prompt, *answer.token_ids]])
    with torch.no_grad():
        return model_of("llama")(input_ids=ids).logits[0, :-1].double()  # type: ignore[no-any-return]


@pytest.mark.parametrize("params", [SamplingParams(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_raw_scores_are_the_targets(gamma: int, params: SamplingParams) -> None:
    answer = engine(gamma).generate(
        PROMPT, max_new_tokens=20, sampling=params, logprobs="raw", prompt_logprobs=True
    )
    rows = rows_of(answer)
    ids = torch.tensor([*PROMPT, *answer.token_ids])[1:]
    due = rows.log_softmax(-1).gather(1, ids[:, None])[:, 0]
    ranks = 1 + (rows > rows.gather(1, ids[:, None])).sum(1)
    torch.testing.assert_close(
        torch.tensor(answer.prompt_logprobs + answer.logprobs, dtype=torch.float64),
        due,
        atol=1e-9,
        rtol=0,
    )
    assert answer.prompt_ranks + answer.ranks == ranks.tolist()
    assert len(answer.logprobs) == len(answer.token_ids) == 20


@pytest.mark.parametrize("gamma", [0, 3])
def test_processed_scores_are_of_the_law_that_was_drawn_from(gamma: int) -> None:
    answer = engine(gamma).generate(
        PROMPT, max_new_tokens=20, sampling=SAMPLED, logprobs="processed"
    )
    rows = rows_of(answer)[len(PROMPT) - 1 :]
    law = Sampler([SAMPLED], "cpu").law(rows.unsqueeze(0))[0]
    due = law.log().gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
    torch.testing.assert_close(
        torch.tensor(answer.logprobs, dtype=torch.float64), due, atol=1e-6, rtol=0
    )
    assert max(answer.ranks) <= 8 and min(answer.logprobs) > -20


def test_scores_end_with_the_ids() -> None:
    free = engine(6).generate(PROMPT, max_new_tokens=20)
    stop = free.token_ids[4]
    answer = engine(6).generate(PROMPT, max_new_tokens=20, stop_ids=[stop], logprobs="raw")
    assert answer.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert len(answer.logprobs) == len(answer.ranks) == len(answer.token_ids)


def test_equal_logits_share_the_better_rank() -> None:
    tied = one_token_law(torch.tensor([0.4, 0.1, 0.4, 0.1]))
    for gamma in (0, 3):
        lookup = make_engine(tied, PromptLookup(PromptLookupConfig()), gamma)
        answer = lookup.generate(
            [0, 2, 0, 2],
            max_new_tokens=30,
            sampling=SamplingParams(temperature=1.0),
            logprobs="raw",
        )
        assert {(t % 2, r) for t, r in zip(answer.token_ids, answer.ranks, strict=True)} == {
            (0, 1),
            (1, 3),
        }


def test_scores_through_a_tree() -> None:
    from foredraft.framework.decoding import Parts
    from foredraft.verifiers.recursive import RecursiveVerifier

    chain = make_engine(target_of("llama"), PromptLookup(PromptLookupConfig()), 3)
    parts = chain.parts
    drafter = PromptLookup(PromptLookupConfig(branches=3))
    tree = Engine(Parts(parts.target, drafter, RecursiveVerifier(), parts.policy, {}))
    answer = tree.generate(PROMPT, max_new_tokens=30, logprobs="raw")
    due = rows_of(answer)[len(PROMPT) - 1 :].log_softmax(-1)
    due = due.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
    torch.testing.assert_close(
        torch.tensor(answer.logprobs, dtype=torch.float64), due, atol=1e-9, rtol=0
    )


def test_samples_are_independent_draws() -> None:
    law = torch.tensor([0.5, 0.3, 0.2])
    target = one_token_law(law)
    drawn = make_engine(target, Ngram(NgramConfig(order=1), target), 2, batch_size=500)
    answers = drawn.generate_many(
        [[0]] * 1000, samples=3, max_new_tokens=1, sampling=SamplingParams(temperature=1.0), seed=1
    )
    assert [a.request.sample for a in answers[:4]] == [0, 1, 2, 0]
    first = [a.token_ids[0] for a in answers]
    joint = [
        9 * a + 3 * b + c for a, b, c in zip(first[0::3], first[1::3], first[2::3], strict=True)
    ]
    product = torch.einsum("a,b,c->abc", law, law, law).flatten().double()
    assert law_p_value(joint, product) > 1e-4


def test_the_first_sample_is_what_a_single_one_would_be() -> None:
    sampled = {"max_new_tokens": 8, "sampling": SAMPLED, "seed": 4}
    alone = engine(3).generate(PROMPT, **sampled)
    several = engine(3).generate_many([PROMPT], samples=3, **sampled)
    assert several[0].token_ids == alone.token_ids
    assert len({tuple(answer.token_ids) for answer in several}) == 3


@pytest.mark.parametrize("samples", [0, -1, 1.5, "3", True])
def test_impossible_numbers_of_samples_are_refused(samples: object) -> None:
    with pytest.raises(ConfigError, match="samples="):
        engine(1).generate_many([PROMPT], samples=samples)  # type: ignore[arg-type]


def test_an_unknown_kind_of_scores_is_refused() -> None:
    with pytest.raises(ConfigError, match="logprobs='all' is not possible"):
        engine(1).generate(PROMPT, logprobs="all")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"temperature": 2}, "option 'temperature' is not possible"),
        ({"samples": 2}, "use generate_many"),
        ({"stop_ids": 3}, "stop_ids=3 is not possible; it must be a list"),
        ({"max_new_token": 3}, "did you mean 'max_new_tokens'"),
    ],
)
def test_options_that_do_not_exist_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        engine(1).generate(PROMPT, **options)

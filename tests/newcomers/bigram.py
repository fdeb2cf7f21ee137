"""Drafts from a smoothed bigram of the newest text."""

from dataclasses import dataclass

from foredraft.framework import DrafterSpec, StepSession, hookimpl


@dataclass
class Config:
    window: int = 256
    smoothing: float = 0.1


class Bigram(StepSession):
    def next_logits(self, drafted):
        ids, vocab = self.context.newest(self.config.window, drafted), self.context.vocab_size
        same = (ids[:, :-1] == ids[:, -1:]).double()  # maths
        counts = same.new_full((len(ids), vocab + 1), self.config.smoothing)  # maths
        return counts.scatter_add(1, ids[:, 1:], same)[:, :vocab].log()  # maths


@hookimpl
def foredraft_drafters():
    return [DrafterSpec("my_bigram", Bigram, Config, "a bigram of the newest text", contract=1)]

"""Drafts with a small network of its own, over the four newest ids."""

from dataclasses import dataclass

import torch

from foredraft.framework import DrafterSpec, StepDrafter, hookimpl, load_weights


@dataclass
class Config:
    path: str = ""


class SmallModel(StepDrafter):
    def __init__(self, config, target):
        embed = torch.nn.Embedding(target.vocab_size + 1, 8)  # maths
        head = torch.nn.Linear(4 * 8, target.vocab_size)  # maths
        net = torch.nn.Sequential(embed, torch.nn.Flatten(), torch.nn.Tanh(), head)  # maths
        self.net = load_weights(net, config.path, target)

    def next_logits(self, context, drafted):
        ids = context.newest(4, drafted)
        return self.net(ids)  # maths


@hookimpl
def foredraft_drafters():
    return [DrafterSpec("small_model", SmallModel, Config, "a small network", contract=1)]

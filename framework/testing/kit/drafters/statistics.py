"""P-values without scipy, which a user of the kit need not have."""

from __future__ import annotations

import torch
from torch import Tensor


def kolmogorov(values: Tensor) -> float:
    """P-value of values in [0, 1] under the uniform law, by Kolmogorov's test with the correction
    of Stephens (1970) for their number: right to a few percent from ten values on."""
    count = len(values)
    ordered = values.sort().values.double()
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    distance = float(torch.maximum(steps[1:] - ordered, ordered - steps[:-1]).max())
    scaled = (count**0.5 + 0.12 + 0.11 / count**0.5) * distance
    if scaled < 0.3:
        return 1.0  # where the series converges slowly
    terms = torch.arange(1, 101, dtype=torch.float64)
    signs = 1 - 2 * ((terms + 1) % 2)
    return float(2 * (signs * torch.exp(-2 * (terms * scaled) ** 2)).sum())


def chi_square(counts: Tensor, due: Tensor, freedom: int | None = None) -> float:
    """P-value of counts where ``due`` are expected; cells that expect fewer than 5 are pooled.

    Args:
        freedom: degrees of freedom; None: one less than there are cells.
    """
    counts, due = counts.double().flatten(), due.double().flatten()
    if bool((counts[due == 0] > 0).any()):
        return 0.0
    large = due >= 5
    observed = torch.cat([counts[large], counts[~large].sum().view(1)])
    wanted = torch.cat([due[large], due[~large].sum().view(1)])
    some = wanted > 0
    statistic = ((observed[some] - wanted[some]).square() / wanted[some]).sum()
    freedom = max(int(some.sum()) - 1, 1) if freedom is None else freedom
    half = torch.tensor(freedom / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, statistic / 2))

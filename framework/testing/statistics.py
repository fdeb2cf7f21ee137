"""P-values: of draws against a law, and of numbers that should be uniform."""

from __future__ import annotations

from torch import Tensor


def uniform_p_value(values: Tensor) -> float:
    """Of values in [0, 1] under the uniform law (Kolmogorov's test)."""
    from scipy.stats import kstest

    return float(kstest(values.double().cpu().numpy(), "uniform").pvalue)


def count_p_value(counts: Tensor, due: Tensor, freedom: int | None = None) -> float:
    """Of counts where ``due`` are expected (chi-square); cells that expect fewer than 5 are pooled.

    Args:
        counts, due: of one shape. A count where none is due gives 0.
        freedom: degrees of freedom; None: one less than there are cells.
    """
    from scipy.special import chdtrc  # chi2.sf without scipy.stats, which takes seconds to import

    counts, due = counts.double().flatten().cpu(), due.double().flatten().cpu()
    if bool((counts[due == 0] > 0).any()):
        return 0.0
    large = due >= 5
    observed = [*counts[large].tolist(), float(counts[~large].sum())]
    wanted = [*due[large].tolist(), float(due[~large].sum())]
    pairs = [(o, w) for o, w in zip(observed, wanted, strict=True) if w > 0]
    statistic = sum((o - w) ** 2 / w for o, w in pairs)
    return float(chdtrc(max(len(pairs) - 1, 1) if freedom is None else freedom, statistic))

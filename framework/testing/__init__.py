"""Tools for proving that a part keeps its contract: the conformance kit, exact laws, tiny models."""

from .kit import check_drafter, check_policy, check_verifier, parametrize_with_checks

__all__ = ["check_drafter", "check_policy", "check_verifier", "parametrize_with_checks"]

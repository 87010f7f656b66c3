"""Student's t, one-sided, at the two levels that verdicts use; no scipy at run time."""

from __future__ import annotations

from math import inf

# Quantiles for 1 to 30 degrees of freedom (W. S. Gosset's distribution; checked against scipy in the tests).
_TABLE = {
    0.95: """
        6.313752 2.919986 2.353363 2.131847 2.015048 1.943180 1.894579 1.859548 1.833113 1.812461
        1.795885 1.782288 1.770933 1.761310 1.753050 1.745884 1.739607 1.734064 1.729133 1.724718
        1.720743 1.717144 1.713872 1.710882 1.708141 1.705618 1.703288 1.701131 1.699127 1.697261
    """,
    0.99: """
        31.820516 6.964557 4.540703 3.746947 3.364930 3.142668 2.997952 2.896459 2.821438 2.763769
        2.718079 2.680998 2.650309 2.624494 2.602480 2.583487 2.566934 2.552380 2.539483 2.527977
        2.517648 2.508325 2.499867 2.492159 2.485107 2.478630 2.472660 2.467140 2.462021 2.457262
    """,
}
_NORMAL = {0.95: 1.6448536269514722, 0.99: 2.3263478740408408}


def t_quantile(dof: float, level: float = 0.95) -> float:
    """Return the one-sided quantile of Student's t.

    Args:
        dof: degrees of freedom, at least 1; a fraction is rounded down, which errs on the safe side;
            `inf` (a declared noise) gives the normal quantile.
        level: 0.95 or 0.99.

    Raises:
        ValueError: another level, or fewer than one degree of freedom.
    """
    if level not in _TABLE or not dof >= 1:
        raise ValueError(f"no t value for {dof} degrees of freedom at {level}")
    z = _NORMAL[level]
    if dof == inf:
        return z
    whole = int(dof)
    if whole <= 30:
        return float(_TABLE[level].split()[whole - 1])
    # Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5); from 31 on it is right to five decimals.
    z2 = z * z
    terms = (
        z * (z2 + 1) / 4,
        z * ((5 * z2 + 16) * z2 + 3) / 96,
        z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384,
        z * ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160,
    )
    return float(z + sum(term / whole**power for power, term in enumerate(terms, 1)))


def mean(values: tuple[float, ...] | list[float]) -> float:
    """Return the mean of one or more values; the sum is exact, so the order does not matter, and equal ones give it."""
    if len(values) == 1:
        return values[0]
    from math import fsum

    try:
        middle = fsum(values) / len(values)
    except OverflowError:
        middle = fsum(value / len(values) for value in values)
    # The division rounds: three times 0.7 would be better than 0.7, or fall short of a target of 0.7.
    return max(min(values), min(max(values), middle))

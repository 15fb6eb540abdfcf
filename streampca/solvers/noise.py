"""Which components can be distinguished from noise: a Tracy-Widom test of each eigenvalue.

Noise alone gives the eigenvalues of a Wishart matrix of order m with n degrees of freedom. Features are not
independent, so n is not the number of features, or of samples: it is chosen so that a Wishart matrix has the first two
moments of the m eigenvalues that remain, s1 and s2. In genetics it is called the effective number of markers.

    n = m (m + 2) / (m^2 s2 / s1^2 - m)
    x = (m theta / s1 - mu) / sigma   has the Tracy-Widom distribution,
    mu = (a + b)^2 / n,   sigma = (a + b) / n (1 / a + 1 / b)^(1/3),   a^2 = max(m, n) - 1,   b^2 = min(m, n)

s1 is the trace without the components before. s2 is known if S is in memory. Otherwise it is estimated from S G for
random vectors G, which takes no sweep of its own: components are removed from G and from S G, and what is known of the
first moment reduces the variance (`second_moment`). The statistic then has a standard error e, which is 1 to 2 with
eight vectors, and the p-value is P(X + e Z > x) for a normal Z: uniform in noise, too.

A Ritz value is a lower bound of its eigenvalue. Above the edge of the noise it proves structure. A solver may stop
early only if the value that it converges to, extrapolated from three sweeps, is no larger than noise makes it, and too
small for a component whose squared cosine with that of the population is 0.2 (`Background.noise`). In doubt a component
is real.

References: Patterson, Price & Reich (2006), PLoS Genetics 2, e190; Johnstone (2001), Annals of Statistics 29, 295;
Paul (2007), Statistica Sinica 17, 1617, and Benaych-Georges & Nadakuditi (2012), J. Multivariate Analysis 111, 120, for
squared cosines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from streampca._typing import Array

# A component with a larger p-value is taken for noise.
LEVEL = 0.05
# Mean and standard deviation of the Tracy-Widom distribution, and its quantile at this level in standard deviations.
MEAN = -1.2065
DEVIATION = 1.2680
QUANTILE = 1.7238
# Certificate that is enough for a component that is noise.
NOISE_TOL = 5e-2
# Squared cosine with the component of the population from which on a component must converge.
COSINE = 0.2
# Largest ratio of the growth of a Ritz value in one sweep to that in the sweep before, for extrapolation.
RATIO = 0.9
# Fewer eigenvalues than this are not tested: there is nothing to compare with.
FEWEST = 3
# log P(X > x) for the Tracy-Widom distribution of order 1, from x = FIRST in steps of STEP.
FIRST, STEP = -6.0, 0.25
LOG_TAIL = np.array([
    -2.707331e-06, -9.889897e-06, -3.287559e-05, -9.982658e-05, -0.0002779564, -0.0007124365, -0.001687574,
    -0.003709192, -0.007596459, -0.01455974, -0.0262353, -0.04465417, -0.07214081, -0.1111594, -0.1641411, -0.2333261,
    -0.3206464, -0.4276578, -0.5555193, -0.7050093, -0.8765651, -1.070335, -1.286236, -1.524003, -1.783244, -2.063475,
    -2.364154, -2.684712, -3.024569, -3.383148, -3.759888, -4.154249, -4.565716, -4.993801, -5.438045, -5.898013,
    -6.373299, -6.863522, -7.368321, -7.887359, -8.420318, -8.966899, -9.526819, -10.09981, -10.68562, -11.284,
    -11.89474, -12.51761, -13.1524, -13.79893, -14.45699, -15.12641, -15.80703, -16.49866, -17.20117, -17.91438,
    -18.63816, -19.37237, -20.11687, -20.87153, -21.63623, -22.41083, -23.19524, -23.98933, -24.79299,
])  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Spectrum:
    """What is known of all eigenvalues of S.

    Attributes
    ----------
    order : number of eigenvalues that can differ from zero.
    trace : their sum.
    second, error : sum of the squares of those after the leading ones, and its standard error.
    other_side : whether components are A u rather than the eigenvectors u of S.
    """

    order: int
    trace: float
    second: float
    error: float = 0.0
    other_side: bool = False

    def after(self, values: Array, removed: int) -> Wishart:
        """Return the noise without components: of entry i, without the first i + `removed` of these leading values."""
        gone = np.arange(len(values)) + removed
        m = (self.order - gone).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            sums, squares = (np.concatenate([[0.0], np.cumsum(v)])[gone] for v in (values, values**2))
            s1, s2 = self.trace - sums, self.second + (values**2).sum() - squares
            n = m * (m + 2) / (m**2 * s2 / s1**2 - m)
            # n = m (m + 2) / v has the relative error of v = m^2 s2 / s1^2 - m.
            error = self.error * m / s1**2 * n / (m + 2)
        known = (m >= FEWEST) & (s1 > 0) & (n > 0) & np.isfinite(n)
        return Wishart(*(np.where(known, one, np.nan) for one in (m, n, s1, error)))


@dataclass(frozen=True)
class Wishart:
    """Noise: a Wishart matrix of order m with n degrees of freedom and trace s1; NaN if it is not known.

    `error` is the relative standard error of n.
    """

    m: Array
    n: Array
    s1: Array
    error: Array

    @property
    def variance(self) -> Array:
        """Mean eigenvalue."""
        return self.s1 / self.m

    @property
    def edge(self) -> tuple[Array, Array]:
        """Centre and scale of the largest eigenvalue, relative to the mean eigenvalue."""
        a, b = np.sqrt(np.maximum(self.m, self.n) - 1), np.sqrt(np.minimum(self.m, self.n))
        return (a + b) ** 2 / self.n, (a + b) / self.n * (1 / a + 1 / b) ** (1 / 3)

    @property
    def statistic_error(self) -> Array:
        """Standard error of the statistic x: the centre is nearly (1 + sqrt(m / n))^2."""
        root = np.sqrt(self.m / self.n)
        return np.asarray(self.error * root * (1 + root) / self.edge[1])

    def largest(self, other_side: bool) -> Array:
        """Return the largest value of a component that need not converge: that of noise, or of a cosine below COSINE.

        With gamma = m / n, a component of variance 1 + l in noise of variance 1 is seen as (1 + l) (1 + gamma / l), and

            cos^2 = (l^2 - gamma) / (l (l + gamma))   for eigenvectors u of S,   (l^2 - gamma) / (l (l + 1))   for A u
        """
        gamma, (centre, scale) = self.m / self.n, self.edge
        quantile = MEAN + QUANTILE * np.hypot(DEVIATION, self.statistic_error)
        linear = COSINE * (1.0 if other_side else gamma)
        strength = (linear + np.sqrt(linear**2 + 4 * (1 - COSINE) * gamma)) / (2 * (1 - COSINE))
        seen = (1 + strength) * (1 + gamma / strength)
        return np.asarray(self.variance * np.minimum(centre + quantile * scale, seen))

    def squared_cosines(self, values: Array, other_side: bool) -> Array:
        """Estimate the squared cosine of components with those of the population: 0 below the edge."""
        gamma = self.m / self.n
        shifted = values / self.variance - 1 - gamma
        strength = (shifted + np.sqrt(np.maximum(shifted**2 - 4 * gamma, 0.0))) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            cosine = (strength**2 - gamma) / (strength * (strength + (1.0 if other_side else gamma)))
        return np.where(shifted > 2 * np.sqrt(gamma), cosine, np.where(np.isnan(shifted), np.nan, 0.0))


@dataclass(frozen=True)
class NoiseTest:
    """Test of each component against noise; NaN where nothing is left to compare with.

    Attributes
    ----------
    statistic, p_value : Tracy-Widom statistic x, and the probability of a larger one in noise.
    n_effective : degrees of freedom n of the noise.
    squared_cosine : estimated squared cosine of each component with that of the population.
    edge : largest eigenvalue that is expected of the noise after the last real component.
    """

    statistic: Array
    p_value: Array
    n_effective: Array
    squared_cosine: Array
    edge: float

    @property
    def noise(self) -> Array:
        """Mask of the components that cannot be distinguished from noise."""
        return is_noise(self.p_value)

    def leading(self, count: int) -> NoiseTest:
        """Return the test of the first `count` components."""
        names = ("statistic", "p_value", "n_effective", "squared_cosine")
        return replace(self, **{name: getattr(self, name)[:count] for name in names})


def is_noise(p_value: Array) -> Array:
    """Return a mask of the components that cannot be distinguished from noise."""
    return after_last(~(p_value > LEVEL))


def after_last(real: Array) -> Array:
    """Return a mask of the entries after the last true one: a component before a real one is real."""
    return np.asarray(~np.logical_or.accumulate(real[::-1])[::-1])


def noise_test(values: Array, spectrum: Spectrum) -> NoiseTest:
    """Test leading eigenvalues (k,), descending."""
    noise = spectrum.after(values, 0)
    centre, scale = noise.edge
    statistic = (values / noise.variance - centre) / scale
    p_value = p_values(statistic, noise.statistic_error)
    # Each real component is noise to none: cosines refer to what is left without all of them.
    n_real = int((~is_noise(p_value)).sum())
    after = spectrum.after(values, 1) if n_real else noise
    last = max(n_real - 1, 0)
    left = Wishart(*(np.full(len(values), one[last]) for one in (after.m, after.n, after.s1, after.error)))
    edge = float(left.variance[0] * left.edge[0][0])
    return NoiseTest(statistic, p_value, noise.n, left.squared_cosines(values, spectrum.other_side), edge)


@dataclass
class Background:
    """The eigenvalues of S that a solver does not compute, from products with random vectors.

    Attributes
    ----------
    G, SG : random vectors and their products (N x p).
    order, trace, other_side : as of `Spectrum`.
    null : a unit vector that S maps to zero, if one is known.
    history : Ritz values of each sweep.
    """

    G: Array
    SG: Array
    order: int
    trace: float
    other_side: bool
    null: Array | None = None
    history: list[Array] = field(default_factory=list)

    def spectrum(self, values: Array, vectors: Array, residuals: Array) -> Spectrum:
        """Return what is known of all eigenvalues, given leading pairs and S u - theta u (N x k)."""
        rest = max(self.trace - float(values.sum()), 0.0)
        # Squares that overflow give no test.
        with np.errstate(over="ignore", invalid="ignore"):
            second, error = second_moment(self.G, self.SG, vectors, vectors * values + residuals, rest, self.null)
            # No sum of squares is smaller than that of equal values.
            least = float(np.square(rest) / max(self.order - len(values), 1))
        return Spectrum(
            order=self.order, trace=self.trace, second=max(second, least), error=error, other_side=self.other_side
        )

    def noise(self, values: Array, vectors: Array, residuals: Array, count: int) -> Array:
        """Return a mask of the first `count` Ritz pairs that are noise and need not converge; called once a sweep.

        More pairs than that may be given: of equal eigenvalues the test finds the last one.
        """
        self.history.append(values)
        known = self.history[-3:]
        if len(known) < 3 or min(map(len, known)) < count:
            return np.zeros(count, bool)
        first, second, third = (one[:count] for one in known)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.clip(np.nan_to_num((third - second) / (second - first)), 0.0, RATIO)
        limits = values.copy()
        limits[:count] += (third - second) * ratio / (1 - ratio)
        noise = self.spectrum(values, vectors, residuals).after(values, 1).largest(self.other_side)
        return after_last(~(limits < noise))[:count]


def second_moment(
    G: Array, SG: Array, vectors: Array, SU: Array, rest: float, null: Array | None = None
) -> tuple[float, float]:
    """Estimate the sum of the squared eigenvalues after the leading ones; return it and its standard error.

    For the columns w of G without the leading vectors, and m = s1 / N the mean of the N eigenvalues that remain,

        s2 = mean(q) + 2 m s1 - m^2 N,   q = N (w'SSw - 2 m w'Sw + m^2 w'w) / w'w

    Parameters
    ----------
    G, SG : random vectors and their products (N x p).
    vectors, SU : leading vectors and their products (N x k).
    rest : s1, the trace without the leading values.
    null : a unit vector that S maps to zero, as the constant one if S is a Gram matrix of centred samples.
    """
    inside = vectors.T @ G
    W, SW = G - vectors @ inside, SG - SU @ inside
    # What is left of S maps no vector to the leading ones.
    SW = SW - vectors @ (vectors.T @ SW)
    if null is not None:
        W = W - np.outer(null, null @ W)
    N = len(G) - vectors.shape[1] - (null is not None)
    if N < FEWEST:
        return 0.0, 0.0
    mean = rest / N
    square = np.einsum("ij,ij->j", W, W)
    q = np.einsum("ij,ij->j", SW, SW) - 2 * mean * np.einsum("ij,ij->j", W, SW) + mean**2 * square
    q = N * q / square
    return float(q.mean() + 2 * mean * rest - mean**2 * N), float(q.std(ddof=1) / np.sqrt(len(q)))


def p_values(statistic: Array, error: Array) -> Array:
    """Return P(X + error Z > statistic) for a Tracy-Widom variable X and a normal Z."""
    exact = tracy_widom_tail(statistic)
    if not (error > 0).any():
        return exact
    y = np.linspace(-10.0, 80.0, 1801)
    distance = (statistic[:, None] - y) / error[:, None]
    density = np.exp(-(distance**2) / 2) / (error[:, None] * np.sqrt(2 * np.pi))
    # Below the first of these points the tail is 1.
    below = [math.erfc((x - y[0]) / e / math.sqrt(2)) / 2 for x, e in zip(statistic, error, strict=True)]
    smoothed = np.trapezoid(density * tracy_widom_tail(y), y, axis=1) + below
    # An error too small for the grid is none.
    return np.where(error > 0.05, np.clip(smoothed, 0.0, 1.0), exact)


def tracy_widom_tail(x: Array) -> Array:
    """Return P(X > x) for the Tracy-Widom distribution of order 1, to five digits; NaN for NaN.

    Cubic interpolation of the logarithm. After the table it falls as that of exp(-2/3 x^(3/2)) / x^(3/4).
    """
    last = FIRST + STEP * (len(LOG_TAIL) - 1)
    place = (np.clip(np.nan_to_num(x), FIRST, last) - FIRST) / STEP
    i = np.minimum(np.maximum(np.floor(place).astype(np.intp) - 1, 0), len(LOG_TAIL) - 4)
    u = place - i
    weights = (-(u - 1) * (u - 2) * (u - 3) / 6, u * (u - 2) * (u - 3) / 2, -u * (u - 1) * (u - 3) / 2,
               u * (u - 1) * (u - 2) / 6)  # fmt: skip
    logs = sum(weight * LOG_TAIL[i + j] for j, weight in enumerate(weights))
    beyond = np.maximum(np.nan_to_num(x), last)
    logs = logs - 2 / 3 * (beyond**1.5 - last**1.5) - 0.75 * np.log(beyond / last)
    return np.where(np.isnan(x), np.nan, np.exp(np.minimum(logs, 0.0)))

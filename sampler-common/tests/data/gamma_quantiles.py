"""Quantiles of gamma distributions of mean 1, the oracle of src/estimate/gamma.rs.

    python3 -m venv v && v/bin/pip install mpmath && v/bin/python gamma_quantiles.py > gamma_quantiles.txt

In 40 digits by mpmath: scipy's gammaincinv is off by up to 0.2 standard deviations in the lower
tail of shapes from 10^6 up.
"""

from mpmath import erfinv, exp, gammainc, inf, log, loggamma, mp, mpf, quad, sqrt

mp.dps = 40


def beyond(shape, x, upper):
    if shape <= 3000:
        a, b = (x, inf) if upper else (0, x)
        return gammainc(shape, a, b, regularized=True)
    # gammainc gives up here: integrate the density in standard deviations.
    s = sqrt(shape)
    density = lambda v: exp((shape - 1) * log(shape + v * s) - shape - v * s - loggamma(shape)) * s
    u = (x - shape) / s
    points = [u, u + 1, u + 3, u + 8, u + 40] if upper else [u - 40, u - 8, u - 3, u - 1, u]
    return quad(density, points)


def quantile(shape, p, upper):
    z = sqrt(2) * erfinv(2 * p - 1) * (-1 if upper else 1)
    cube = 1 - 1 / (9 * shape) + z / (3 * sqrt(shape))  # Wilson and Hilferty
    small = exp((log(p) + loggamma(shape + 1)) / shape)
    if shape >= 1:
        ln_x = log(shape * cube**3) if cube > mpf("0.3") else log(small)
    else:
        ln_x = log(max(mpf(1), log(shape / p))) if upper else log(small)
    while True:  # Newton on the logarithm, concave in ln x: converges from everywhere
        x = exp(ln_x)
        reached = beyond(shape, x, upper)
        step = log(reached / p) * reached / exp(shape * ln_x - x - loggamma(shape))
        ln_x += step if upper else -step
        if abs(step) < mpf(10) ** -20:
            return exp(ln_x) / shape


print("# shape, tail probability, lower quantile / mean, upper quantile / mean; by gamma_quantiles.py")
for shape in "1e-4 0.01 0.1 0.3 0.7 1 1.7 2 5 12.5 40 150 999 1001 5000 1e6 1e9 1e12".split():
    for p in "0.5 0.15 0.025 5e-4 5e-8 1e-10 5e-13".split():
        both = [mp.nstr(quantile(mpf(shape), mpf(p), upper), 17) for upper in (False, True)]
        print(shape, p, *both)

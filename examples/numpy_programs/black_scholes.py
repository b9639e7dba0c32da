"""Prices of European calls by Black and Scholes: the gradients are the Greeks."""

import numpy as np

# Abramowitz and Stegun 26.2.17: the normal distribution to 7.5e-8.
COEFFICIENTS = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)


def inputs(rng):
    spot = np.array(100.0)
    strike = np.array([80.0, 95.0, 104.0, 120.0])
    rate = np.array(0.03)
    volatility = rng.uniform(0.15, 0.3, size=4)
    years = np.array(1.5)
    return spot, strike, rate, volatility, years


def normal_cdf(x):
    t = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    series = 0.0
    for coefficient in reversed(COEFFICIENTS):
        series = (series + coefficient) * t
    tail = np.exp(-0.5 * np.square(x)) / np.sqrt(2 * np.pi) * series
    return np.where(x >= 0, 1.0 - tail, tail)


def program(spot, strike, rate, volatility, years):
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / spread
    d2 = d1 - spread
    return spot * normal_cdf(d1) - strike * np.exp(-rate * years) * normal_cdf(d2)

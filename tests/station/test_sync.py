"""The line through the minima follows offset and drift to 100 us; stalls do not move it, a stepped clock is noticed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from station import sync

LOW = 0.003


def stream(seed, seconds, drift, offset, rate=200.0, bursts=0.01):
    """Source stamps, arrivals and true exposures (host) of a jittery source."""
    rng = np.random.default_rng(seed)
    t = 50.0 + np.arange(round(seconds * rate)) / rate
    latency = LOW + np.minimum(rng.exponential(0.0006, len(t)), 0.005)
    latency[rng.uniform(size=len(t)) < bursts] += rng.uniform(0.0, 0.05)
    return (1.0 + drift) * t + offset, np.maximum.accumulate(t + latency), t


def errors(source, arrival, t):
    """Error of each frame's exposure, the smallest latency known, s."""
    state, out = sync.Sync(), []
    for s, a, exposure in zip(source.tolist(), arrival.tolist(), t.tolist(), strict=True):
        state = sync.observe(state, s, a - LOW)
        out.append(sync.to_host(state, s) - exposure)
    return np.array(out), state


@pytest.mark.parametrize("drift", [-50e-6, 0.0, 20e-6, 50e-6])
@pytest.mark.parametrize("seed", range(3))
def test_exposures_are_dated_to_100_us(seed, drift):
    error, state = errors(*stream(seed, 30.0, drift, 777.7))
    assert np.abs(error[200:]).max() < 1e-4
    assert np.abs(error[1000:]).max() < 5e-5
    assert abs(state.drift + drift) < 5e-6
    assert sync.quality(state) == "line"


def test_running_minimum_serves_the_first_second():
    error, _ = errors(*stream(5, 0.5, 50e-6, -300.0))
    assert np.abs(error[40:]).max() < 2e-4


def test_a_second_in_which_all_is_late_does_not_bend_the_line():
    source, arrival, t = stream(1, 25.0, 30e-6, 0.0)
    arrival = arrival + 0.004 * ((t > 65.0) & (t < 66.2))
    error, _ = errors(source, arrival, t)
    assert np.abs(error[1000:]).max() < 1.5e-4


def test_a_stalled_host_is_late_not_stepped():
    source, arrival, t = stream(2, 8.0, 0.0, 0.0)
    stalled = (t > 55.0) & (t < 55.2)
    arrival = np.where(stalled, 55.2, arrival)
    error, state = errors(source, arrival, t)
    assert state.steps == 0
    assert np.abs(error[200:]).max() < 1e-4


@pytest.mark.parametrize("step", [-100.0, -0.1, 0.1, 3600.0])
def test_a_stepped_clock_is_synced_anew_within_50_ms(step):
    source, arrival, t = stream(3, 12.0, 10e-6, 5.0)
    source = source + step * (t > 56.0)
    error, state = errors(source, arrival, t)
    assert state.steps == 1
    assert np.abs(error[t > 56.1]).max() < 1e-3
    assert np.abs(error[t > 57.5]).max() < 1e-4


@settings(max_examples=30, deadline=None)
@given(st.floats(-1e4, 1e4), st.floats(-5e-5, 5e-5), st.sampled_from([50.0, 100.0, 240.0]))
def test_any_offset_drift_and_rate(offset, drift, rate):
    error, _ = errors(*stream(4, 6.0, drift, offset, rate))
    assert np.abs(error[round(1.5 * rate) :]).max() < 2.5e-4

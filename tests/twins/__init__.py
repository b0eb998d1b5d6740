"""Slow, obvious versions of the fast code: what the tests compare with and the benchmarks race against."""

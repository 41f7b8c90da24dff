"""Benchmarks: programs that measure and judge nothing. Nothing imports them."""

"""What several benchmarks share, and the programs that they start and compare with."""

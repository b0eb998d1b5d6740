"""Many runs: races, sweeps and tournaments, and the store that keeps them."""

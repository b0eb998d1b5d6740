"""One round of federated learning, the same in a simulation and over real clients: see, ask, decide, judge, learn."""

"""The default values, each defined once.

Cell, Devices, Spec, the command line and its help, the API and the page all read it from here. Nothing is imported, so
that the command line can show its help without loading NumPy.
"""

# The paper's cell and devices.
RADIUS_M = 1400.0
"""Of Fig. 3(a)-(c), the race; the paper's other experiments are in a cell of 1,000 m unless they say otherwise."""
BANDWIDTH_HZ = 3e6
NOISE_DBM_PER_MHZ = -114.0
PATH_LOSS_1KM_DB = 128.1
PATH_LOSS_EXPONENT = 3.76
MODEL_BITS = 50_890 * 32
"""The paper's network, 32 bits a weight."""
DEVICES = 20
SAMPLES = 3000
SECONDS_PER_SAMPLE = 2e-3
SAMPLES_PER_SECOND = 4000.0
POWER_DBM_PER_MHZ = 7.0
DOWNLINK_DBM_PER_MHZ = 36.0  # not the paper's, whose downlink takes no time: 46 dBm over 10 MHz, 3GPP's macro cell

# Energy, of which the paper says nothing: see docs/radio.md.
KAPPA = 1e-28
"""Effective switched capacitance of a processor, in J s^2."""
CPU_HZ = 1e9

# A race: the contest of the paper's Fig. 3.
BUDGET_S = 450.0
SEEDS = 5
TARGET_ACCURACY = 0.8

# A fit of the rounds model.
FIT_DEVICES = (2, 4, 8, 12, 16, 20)
FIT_ROUNDS = 60

# Flower and the testbed.
SLACK = 2.0
"""A device that takes longer than this times what was planned is left out of its round."""
TESTBED_DEVICES = 4
TESTBED_ROUNDS = 5

PORT = 8420
"""Of the dashboard."""

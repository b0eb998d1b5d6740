"""Who trains this round, and with how much of the band."""

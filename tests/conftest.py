import harness
from hypothesis import settings

# The first call of a compiled function may compile it: no deadline. The same examples on every machine.
settings.register_profile("fedcell", deadline=None, derandomize=True)
settings.load_profile("fedcell")

harness.accept_interrupts()

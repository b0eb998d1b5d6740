"""A convolutional network with the torch engine (pip install 'fedcell[torch]'), on CPU or GPU.

All scheduled devices are stacked and trained by one launch: slow on a CPU, which is why each holds 300 digits here, and
made for a GPU. Any nn.Module will do: name a function that takes the data set and returns it, as
``model="package.module:function"``.

Run: python examples/cnn_torch.py [rounds]
"""

import sys

import fedcell as fc
from fedcell.sim.spec import TaskSpec

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
task = TaskSpec(
    engine="torch",
    model="cnn",
    partition="labels:5",
    sizes=[300] * 20,
    batch_size=20,
    learning_rate=0.05,
    momentum=0.5,
)
spec = fc.Spec(policy="optimal:max_devices=6", rounds=rounds, cell=fc.Cell(radius_m=1400.0), task=task)
for record in fc.simulate(spec):
    print(
        f"round {record.round:3}  {record.clock_s:6.1f} s  {len(record.delivered):2} devices  "
        f"{100 * record.accuracy:5.2f} %",
        flush=True,
    )

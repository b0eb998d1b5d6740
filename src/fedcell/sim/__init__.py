"""One run: its spec, its task, what the server knows, and the loop that trains against a simulated clock."""

from fedcell import lazy_names, names_in

_NAMES = {
    "fedcell.sim.loop": "Simulation simulate visits world_of",
    "fedcell.sim.record": "Column ROUND_COLUMNS RoundRecord columns",
    "fedcell.sim.requests": "run_coroutine step_together",
    "fedcell.sim.spec": "MAX_RUNS Spec TaskSpec first_fault load_spec parse_spec parse_stored require_spec upgraded",
    "fedcell.sim.spec_fields": "SpecField all_fields in_words",
    "fedcell.sim.spec_warnings": "warn warnings_of without_spec_warnings",
    "fedcell.sim.state": "State",
    "fedcell.sim.task": "Task class_accuracy evaluate_models layers load_task resolve_device",
}
__getattr__ = lazy_names("fedcell.sim", _NAMES, {"played": "run_coroutine", "settled": "resolve_device"})
__all__ = names_in(_NAMES)

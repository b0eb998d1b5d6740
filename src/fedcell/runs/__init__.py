"""Many runs: the runner and its store, races, sweeps, tournaments and fits, their statistics, reports and trackers."""

from fedcell import lazy_names, names_in

_NAMES = {
    "fedcell.runs.comparisons": "Axis comparisons",
    "fedcell.runs.contest": "STANDARD Scenario Tournament chosen_scenarios contenders load_scenarios load_tournament "
    "scenarios_toml",
    "fedcell.runs.fit": "fit",
    "fedcell.runs.models": "SavedModel Score checked_ending load_model model_paths save_model",
    "fedcell.runs.processes": "Processes",
    "fedcell.runs.race": "Heartbeat KnownRace RaceResult RaceTable comparable default_race is_ours own_code "
    "race_policies race_runs race_spec race_to_store run_race",
    "fedcell.runs.race_report": "race_command",
    "fedcell.runs.records": "ADDED Measure Rounds read_rounds write_rounds",
    "fedcell.runs.runner": "Event RoundsDone RunDone RunFailed Runner WorkerLost",
    "fedcell.runs.stats": "Mean stats",
    "fedcell.runs.store": "Measured Store differing_in spec_document",
    "fedcell.runs.stored": "Source StoredRace StoredRun StoredTournament column_of flat",
    "fedcell.runs.sweep": "Progress SweepResult run_sweep",
    "fedcell.runs.tournament": "TournamentResult Winner measured_decisions run_tournament",
    "fedcell.runs.tournament_report": "TournamentReport put_between",
    "fedcell.runs.trackers": "Tracker parse_trackers tracking",
}
__getattr__ = lazy_names("fedcell.runs", _NAMES)
__all__ = names_in(_NAMES)

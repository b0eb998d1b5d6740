"""The model that is trained: data, partitions, engines."""

from fedcell import lazy_names, names_in

_NAMES = {
    "fedcell.learn.aggregator": "AGGREGATORS Aggregator AggregatorState LateModels Spelling02 "
    "format_aggregator parse_aggregator",
    "fedcell.learn.compression": "COMPRESSIONS Compression Residuals fed_back rounded_updates",
    "fedcell.learn.data": "Dataset absolute content_files load_dataset save_dataset",
    "fedcell.learn.engine": "BATCH_SIZE Engine Evaluation HIDDEN HostUpdates Job LEARNING_RATE Updates is_count",
    "fedcell.learn.hugging_face": "dataset_from",
    "fedcell.learn.learning_rate": "Constant parse_schedule",
    "fedcell.learn.mlp": "MlpEngine",
    "fedcell.learn.mlp_cuda": "MlpCudaEngine unsupported_reason",
    "fedcell.learn.partition": "Kind Labels Sizes label_counts parse_kind parse_sizes partition",
    "fedcell.learn.profile": "MAX_PROFILE REPORT_SAMPLES noise_of normalised private profile_of",
    "fedcell.learn.published": "DATA_VARIABLE PUBLISHED find_data",
    "fedcell.learn.torch_engine": "torch_engine",
    "fedcell.learn.torch_modules": "torch_modules",
}
__getattr__ = lazy_names("fedcell.learn", _NAMES)
__all__ = names_in(_NAMES)

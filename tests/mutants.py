"""Breaks the package on purpose, one break at a time. Every break must make its tests fail.

    python tests/mutants.py              makes every break
    python tests/mutants.py delay phase  makes the breaks whose name contains one of these words
    python tests/mutants.py --passed     the same tests have just passed: run only those unbroken that ran differently

A break, called a mutant, replaces one string in one file of a copy of src. The tests named beside it then run against
that copy. Which kernel the copy contains depends on the file that is broken:

* in a C file: a kernel that is built from the copy;
* in the Python files of kernels/ and experiments/: the kernel of this checkout;
* elsewhere: none, so that the tests exercise the cascade.

To add a break, append a `Mutant` to `MUTANTS`. Its `old` string must occur exactly once in the file.
"""

import atexit
import gc
import json
import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

PASSED = "--passed"
ROOT = Path(__file__).resolve().parent.parent
# every test process is forked from a server that has loaded the slow imports, but nothing of the package
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([
    "numpy", "pytest", "torch", "hypothesis", "pandas", "sklearn.utils", "scipy.signal", "torch._inductor",
])  # fmt: skip
# two threads that start a process at the same time would both start the server
STARTING = Lock()
BACKENDS = "tests/core/test_battery.py"
ONNX_SEQUENCES = "tests/export/test_onnx_sequences.py"
ONNX_FILES = "tests/export/test_onnx_files.py"
TRAINING = "tests/estimators/test_training.py"
CLOCKS_FROM_DATA = "tests/estimators/test_clocks.py"
TIME_SERIES = "tests/estimators/test_series.py"
FORECAST_FEATURES = "tests/estimators/test_features.py"
INTERVALS = "tests/estimators/test_intervals.py"
SEASONS = "tests/estimators/test_seasons.py"
FORECAST_FILES = "tests/estimators/test_forecast_files.py"
STREAM_STATE = "tests/estimators/test_forecaster.py::test_updates_equal_reading_the_whole_series"
UPDATE_COST = "tests/estimators/test_forecaster.py::test_the_cost_of_an_observation_does_not_grow"
FILLED_INTERVALS = "tests/estimators/test_forecaster.py::test_filled_values_move_no_interval"
FOLLOWED = "tests/estimators/test_forecaster.py::test_intervals_follow_new_observations"
FILLED_TARGETS = "tests/estimators/test_forecaster.py::test_filled_values_do_not_teach"
HELD_OUT_END = "tests/estimators/test_forecaster.py::test_the_held_out_end_does_not_teach"
FORECAST_SEED = "tests/estimators/test_forecaster.py::test_one_seed_has_the_same_bits"
BACKTEST_SCORES = "tests/estimators/test_backtest.py::test_scores_equal_their_definitions"
BACKTEST_ORIGINS = "tests/estimators/test_backtest.py::test_forecasts_are_those_of_fit_update_and_predict"
BACKTEST_RIVALS = "tests/estimators/test_backtest.py::test_torch_layers_have_equal_parameters_and_time"
EXPORTED_OUTPUTS = "tests/export/test_c_bits.py::test_outputs_are_those_of_python"
EXPORTED_FEATURES = "tests/export/test_c_features.py::test_frames_are_those_of_python"
EXPORTED_INTEGERS = "tests/export/test_c_int8.py::test_integers_are_those_of_python"
QUANTISED_OUTPUTS = "tests/export/test_c_int8.py::test_outputs_are_close_to_float32"
CALIBRATED = "tests/export/test_c_calibration.py"
WINDOWS = "tests/estimators/test_windows.py"
SEQUENCES = "tests/estimators/test_sequences.py"
SEQUENCE_FILES = "tests/estimators/test_sequence_files.py"
WEIGHTS = "tests/estimators/test_scikit_learn.py::test_a_heavy_class_is_predicted_more_often"
WASM = "tests/export/test_wasm.py"
WASM_PAGE = "tests/export/test_wasm_page.py"
LAST_LAYER = "tests/estimators/test_classifier.py::test_the_readout_reads_the_last_layer_at_both_ends"
ALONE = "tests/estimators/test_classifier.py::test_a_sequence_is_classified_alike_alone_and_among_longer_ones"
LAYER = "tests/core/test_layer.py"
OTHER_CLOCKS = "tests/core/test_state_dicts.py::test_weights_of_other_clocks_are_refused_and_both_schedules_are_named"
ASSIGNED = "tests/core/test_state_dicts.py::test_assigning_does_not_write_into_the_callers_tensors"
ZEROS_LOADED = "tests/core/test_layer.py::test_forbidden_weights_are_loaded_as_zeros"
TORCHS_WEIGHTS = "tests/core/test_state_dicts.py::test_the_state_dict_of_torchs_layer_loads_into_one_module_of_period_1"
ABSURD = "tests/core/test_schedule.py::test_absurd_numbers_are_refused_before_they_cost_time_or_memory"
TABLES = "tests/experiments/test_tables.py"
COLUMNS = "tests/experiments/generation/test_columns.py"
REGRESSION = "tests/experiments/regression"
TABLE_CLOCKS = "tests/experiments/clocks/test_tables.py::test_series_are_compared_on_columns"
RECORDED = "tests/core/test_recorded_layers.py"
DRAWS = "tests/experiments/words/test_draws.py"
DRAW_STATISTICS = "tests/experiments/report/test_draws.py"
CLOCK_CHOICE = "tests/experiments/clocks/test_choice.py"
DAMAGED_STORE = "tests/experiments/inspect/test_loading.py::test_a_damaged_store_is_refused"
FORGED = "tests/core/test_state.py::test_a_forged_schedule_in_a_checkpoint_is_refused"
CHUNKS = "tests/core/test_state.py::test_a_stream_of_chunks_and_steps_needs_no_clock"
UNFIT_STATE = "tests/core/test_state.py::test_a_state_that_does_not_fit_is_refused"
SPECIFIED_NO_TICKS = "tests/core/test_state.py::test_the_specification_has_gradients_where_no_module_ticks"
GATED_OPERATORS = "tests/kernels/test_operators.py::test_second_derivatives_of_the_operator_equal_the_specification"
GATED_REPLICAS = "tests/kernels/test_replicas.py::test_a_replica_of_a_gated_network_gives_the_same_bits_alone"
REPLICAS = "tests/like_torch/test_transforms.py::test_vmap_over_replicas_equals_a_loop"
TRACED = "tests/like_torch/test_tracing.py::test_a_traced_layer_can_be_saved"
CELL_STEPS = "tests/core/test_cells.py::test_steps_equal_the_specification"
NO_TICKS = "tests/core/test_state.py::test_gradients_are_defined_where_no_module_ticks"
PAPER = "tests/core/test_paper.py"
SCHEDULE = "tests/core/test_schedule.py"
READOUT = "tests/core/test_readout.py"
COST = "tests/core/test_cost.py"
TRANSFORMS = "tests/like_torch/test_transforms.py"
COMPILED_FORWARD = "tests/like_torch/test_export.py::test_a_graph_without_gradients_computes_the_output_alone"
COMPILED_BACKWARD = "tests/like_torch/test_export.py::test_a_graph_with_gradients_computes_the_wanted_ones_alone"
FUNCTIONALIZED = "tests/like_torch/test_transforms.py::test_functionalized_calls_equal_plain_ones"
BATCHED_GRADIENTS = "tests/like_torch/test_transforms.py::test_batched_gradients_equal_single_ones"
KERNEL = "tests/kernels/test_sequence.py::test_any_sizes_and_lengths_equal_the_specification"
KERNEL_SUMS = "tests/kernels/test_sequence.py::test_gradients_of_a_large_batch_are_summed_completely"
KERNEL_SINGLE = "tests/kernels/test_sequence.py::test_a_sequence_through_a_large_network_gives_the_same_bits_alone"
KERNEL_TANH = "tests/kernels/test_sequence.py::test_tanh_is_exact_to_three_units_in_the_last_place"
KERNEL_STATE = "tests/kernels/test_stepping.py::test_step_notices_a_changed_state"
KERNEL_STEPS = "tests/kernels/test_stepping.py::test_steps_equal_the_specification"
POOL = "tests/core/test_streams.py::test_streams_come_and_go_and_equal_themselves_alone"
KERNEL_ROWS = "tests/kernels/test_rows.py::test_clocks_of_their_own_give_the_bits_of_each_sequence_alone"
CLOCKS_OF_SEQUENCES = "tests/core/test_phases.py::test_a_batch_of_clocks_equals_each_sequence_alone"
STEPS_OF_CLOCKS = "tests/core/test_phases.py::test_a_step_of_clocks_equals_each_sequence_alone"
LENGTHS_GO_ON = "tests/core/test_phases.py::test_sequences_of_different_lengths_go_on"
KERNEL_WEIGHTS = "tests/kernels/test_stepping.py::test_step_notices_changed_weights"
KERNEL_LARGE = "tests/kernels/test_blocks.py::test_an_output_larger_than_the_caches_has_the_same_bits_as_in_parts"
KEPT = "tests/kernels/test_blocks.py::test_the_next_tensor_of_that_size_gets_the_block"
KEPT_MOST = "tests/kernels/test_blocks.py::test_no_more_is_kept_than_was_lent_at_once"
KEPT_SIZES = "tests/kernels/test_blocks.py::test_similar_sizes_share_a_block"
KEPT_CLOCK = "tests/kernels/test_blocks.py::test_old_blocks_are_timed_by_a_clock_that_cannot_be_set"
KERNEL_DENORMALS = "tests/kernels/test_threads.py::test_all_threads_flush_denormal_numbers_as_the_caller_does"
PRECISION = "tests/kernels/test_precision.py"
NONFINITE = "tests/like_torch/test_nonfinite.py"
PADDING = f"{NONFINITE}::test_nothing_beyond_the_end_of_a_sequence_is_read"
PADDING_IN_GRAPH = f"{NONFINITE}::test_nothing_beyond_the_end_of_a_sequence_is_read_in_a_graph"
KERNEL_INFINITE = f"{NONFINITE}::test_the_kernel_spoils_no_number_that_the_specification_does_not_spoil"
KERNEL_NAN = "tests/kernels/test_sequence.py::test_nan_of_a_fast_module_does_not_reach_a_slower_one"
SECOND_ORDER = "tests/like_torch/test_saved_tensors.py::test_second_order_gradients_of_checkpoints_equal_plain_ones"
FORWARD_MODE = "tests/like_torch/test_transforms.py::test_forward_mode_equals_torchs"
FORWARD_TWICE = "tests/like_torch/test_transforms.py::test_forward_mode_twice_equals_that_of_the_specification"
KERNEL_MEMORY = "tests/kernels/test_memory.py"
KERNEL_ODD = "tests/kernels/test_inference.py::test_inference_takes_tensors_of_any_kind"
GPU_MODULES = "tests/kernels/test_gpu.py::test_table_of_modules_by_hand"
SMALL = "tests/kernels/test_small_networks.py"
SMALL_EQUALS = f"{SMALL}::test_any_schedule_and_phase_equal_the_specification"
SMALL_BROKEN = f"{SMALL}::test_no_number_is_spoilt_that_the_specification_does_not_spoil"
SCAN = "tests/kernels/test_scan.py"
SCAN_ALONE = f"{SCAN}::test_modules_in_one_block_equal_the_specification"
SCAN_SPREAD = f"{SCAN}::test_spread_modules_equal_the_specification"
COMPILER = "tests/kernels/test_compiler.py"
GRADIENTS = "tests/kernels/test_gradients.py"
GRADIENTS_ANY = f"{GRADIENTS}::test_any_shape_equals_the_equations"
GRADIENTS_LARGE = f"{GRADIENTS}::test_large_blocks_equal_the_equations"
SCAN_TURNS = f"{SCAN_SPREAD}[turns-float32]"
SCAN_WAITS = f"{SCAN}::test_every_wait_ends_if_the_parts_of_one_module_run_at_once"
GATED_SCAN = "tests/kernels/test_gated_scan.py"
GATED_LAYOUTS = f"{GATED_SCAN}::test_every_layout_equals_the_specification"
GATED_PEEPHOLES = f"{GATED_LAYOUTS}[float32-coprime]"
GRU_LAYOUTS = f"{GATED_LAYOUTS}[gru-float32]"
GATED_LENGTHS = f"{GATED_SCAN}::test_sequences_end_at_their_lengths_and_are_not_read_beyond"
CUDNN = "tests/core/test_cudnn.py"
CUDNN_LENGTHS = f"{CUDNN}::test_lengths_equal_the_specification"
CUDNN_CHUNKS = f"{CUDNN}::test_chunks_of_time_equal_the_specification"
CUDNN_STREAMS = f"{CUDNN}::test_streams_wait_for_what_they_read_and_memory_for_its_readers"
CUDNN_PACKING = f"{CUDNN}::test_weights_are_packed_as_torch_orders_them"
CUDNN_ALONE = f"{CUDNN}::test_each_gradient_alone_equals_the_specification"
GRU_STEPS = "tests/core/test_gru_steps.py"
GRU_ON_CUDNN = "tests/core/test_gru_on_cudnn.py"
ANY_GRU_ON_CUDNN = f"{GRU_ON_CUDNN}::test_any_schedule_phase_and_lengths_equal_the_specification"
GRU_ON_CUDNN_ALONE = f"{GRU_ON_CUDNN}::test_each_gradient_alone_equals_the_specification"
GRU_AT_ONCE = "tests/core/test_gru_at_once.py"
GRU_HOLDING = f"{GRU_AT_ONCE}::test_the_input_says_which_modules_hold"
GPU_STEPS = "tests/kernels/test_gpu_stepping.py::test_steps_equal_the_specification"
GPU_CLOCKS = "tests/kernels/test_gpu_stepping.py::test_every_sequence_has_its_own_clock"
GPU_TILES = "tests/kernels/test_gpu_stepping.py::test_bits_depend_neither_on_the_batch_nor_on_the_units_of_a_warp"
GPU_STREAM = "tests/kernels/test_gpu_stepping.py::test_a_stream_notices_every_change"
LSTM = "tests/kernels/test_lstm.py::test_kernel_equals_the_plain_loop"
LSTM_GATES = "tests/kernels/test_lstm.py::test_gates_are_exact_to_some_units_in_the_last_place"
LSTM_SIZES = "tests/kernels/test_lstm.py::test_sizes_beyond_64_bits_do_not_wrap_around"
LSTM_END = "tests/kernels/test_lstm.py::test_steps_beyond_the_end_of_a_sequence_are_not_read"
READOUTS = "tests/experiments/generation/test_training.py::test_the_readout_kernel_agrees_with_torch"
UPDATES = "tests/experiments/generation/test_training.py::test_training_agrees_with_torchs_optimiser"
DIVERGED = "tests/experiments/generation/test_training.py::test_a_run_that_diverged_keeps_its_best_weights"
OWN = "tests/experiments/generation/test_training.py::test_each_run_has_its_own_target_and_seed"

LEARNED = "tests/core/test_learned.py"
LEARNED_PARTS = "tests/core/test_learned.py::test_chunks_equal_one_call"
LEARNED_MASK = "tests/core/test_learned.py::test_slow_modules_never_read_fast_ones"
LEARNED_SHARP = "tests/core/test_learned.py::test_hard_clocks_give_the_specification"
LEARNED_GRADIENT = "tests/core/test_learned.py::test_gradients_equal_finite_differences"
LEARNED_HARD = "tests/core/test_learned.py::test_the_hardened_layer_equals_the_sharp_one"
LEARNED_PHASES = "tests/core/test_learned.py::test_harden_turns_phases_into_a_start_of_the_clock"
LEARNED_MOVED = "tests/core/test_learned.py::test_the_report_measures_how_far_outputs_moved"
BUILD = "tests/experiments/networks/test_build.py"
GATED_CLAIMS = "tests/experiments/report/test_gated.py::test_the_papers_claims_are_about_its_methods_only"
STORE = "tests/experiments/sweep/test_store.py"
ENGINE = "tests/experiments/sweep/test_batches.py::test_a_run_that_fails_does_not_fail_its_batch"
AGAIN = "tests/experiments/sweep/test_driver.py::test_stored_runs_are_not_trained_again"
LEFT = "tests/experiments/sweep/test_progress.py::test_the_estimate_follows_the_measured_times"
AUDIO = "tests/experiments/generation/test_music.py"
FORGETTING = "tests/core/test_inspection.py::test_a_unit_forgets_by_its_weight_at_each_of_its_ticks"
MEMORY = "tests/core/test_inspection.py::test_memory_equals_the_derivatives_of_autograd"
SILENCE = "tests/core/test_inspection.py::test_readers_of_a_silenced_module_read_a_constant"
SPECTRUM = "tests/core/test_inspection.py::test_the_power_of_a_spectrum_is_the_variance"
COUNTED = "tests/core/test_inspection.py::test_multiply_adds_equal_a_count_step_by_step"
INSPECTED = "tests/experiments/inspect/test_loading.py::test_other_data_are_normalised_as_the_training_data"
FAULTS = "tests/experiments/sweep/test_faults.py::test_a_sweep_killed_again_and_again_loses_no_finished_run"
WORDS = "tests/experiments/words/test_training.py::test_one_epoch_equals_that_of_torchs_optimiser"
WORDS_EPOCH = "tests/experiments/words/test_training.py::test_an_epoch_has_every_sequence_once"
WORDS_NORMAL = "tests/experiments/words/test_corpus.py::test_training_frames_alone_normalise_both_splits"
SERIES = "tests/experiments/clocks/test_comparison.py::test_holms_correction_equals_one_by_hand"
VERDICT = "tests/experiments/clocks/test_verdict.py"
SEED = "tests/experiments/clocks/test_evolution.py::test_random_numbers_of_the_user_do_not_change_the_search"
IMPORTS = "tests/test_import_direction.py"
SAVED = "tests/core/test_saved.py::test_a_changed_bit_is_refused"
SAVING = "tests/core/test_saved.py::test_an_interrupted_save_leaves_the_old_file"
BAD_HEADER = "tests/core/test_saved.py::test_a_header_that_makes_no_sense_is_refused"
BAD_JSON = "tests/core/test_saved.py::test_json_that_cannot_be_used_is_refused"
ENDLESS = "tests/core/test_untrusted.py::test_pipes_devices_and_folders_are_refused"
BOMB = "tests/experiments/words/test_sound_files.py::test_small_file_of_a_very_long_sound_is_refused"
DAMAGED_CACHE = "tests/experiments/words/test_feature_cache.py::test_damaged_cache_is_computed_anew_and_written_again"
LOUD = "tests/experiments/words/test_sound_files.py::test_sample_that_cannot_be_used_is_named"
NOT_FINITE = "tests/experiments/words/recogniser/test_model.py::test_probability_that_is_not_finite_is_refused"
TERMINAL = "tests/commands/test_words.py::test_terminal_obeys_no_name_of_a_file"
FORESEEN = "tests/core/test_writing.py::test_the_temporary_name_cannot_be_foreseen"
ABANDONED = "tests/core/test_writing.py::test_temporary_files_of_killed_processes_are_removed"
DEVICE = "tests/core/test_writing.py::test_a_target_that_is_no_regular_file_is_refused"
STREAM = "tests/experiments/words/recogniser/test_model.py::test_stream_decides_as_the_whole_sound"
CHOICE = "tests/experiments/words/recogniser/test_training.py::test_best_learner_of_the_training_words_is_chosen"
EVALUATION_TRAINING = "tests/experiments/evaluation/test_training.py"
EVALUATED = "tests/experiments/evaluation/test_evaluate.py"
INITIAL = "tests/core/test_init.py"


class Mutant(NamedTuple):
    """A break: `old` becomes `new` in `file` (relative to src/cwrnn), and `tests` (arguments of pytest) must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str


MUTANTS = [
    Mutant("delay: a module reads the message of its own tick", "cascade.py",
           "mine.at(start + period - 1,", "mine.at(start + period,",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("phase: ticks are counted from the start of the chunk", "backends.py",
           "            return backend\n        # a graph",
           "            return backend._replace(run=lambda *a: backend.run(*a[:6], 0, *a[7:]))\n        # a graph",
           f"{LAYER}::test_a_sequence_split_anywhere_equals_one_call"),
    Mutant("phase: the input is taken one step too late", "cascade.py",
           "inputs.append(finer[(first - origin) // stride ::", "inputs.append(finer[(first - origin) // stride + 1 ::",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("phase: the clock of a step is off by one", "step.py",
           "schedule.due(t)", "schedule.due(t + 1)", f"{LAYER}::test_steps_equal_one_call"),
    Mutant("phase: a step does not advance the clock", "layer.py",
           "keep_messages(h, t + 1, self.backend, kept,", "keep_messages(h, t, self.backend, kept,",
           f"{LAYER}::test_steps_equal_one_call"),
    Mutant("vmap: gradients of a replaced row are torch's wrong ones", "cascade.py",
           "return torch.cat((value[None], values[1:]) if row == 0 else (values[:-1], value[None]))",
           "return values.select_scatter(value, 0, row)", REPLICAS),
    Mutant("hold before the first tick: the message is zero", "cascade.py",
           "values = _multiply_heard(modules[-1].values,",
           "values = _multiply_heard(F.pad(modules[-1].values[1:], (0, 0, 0, 0, 1, 0)),",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("hold before the first tick: the held output is zero", "held.py",
           "held = torch.cat([module.at(self.t0, 1, self.T) for module in self.modules], dim=-1)",
           "held = torch.cat([m._replace(values=torch.cat((m.values[:1] * 0, m.values[1:]))).at(self.t0, 1, self.T) "
           "for m in self.modules], dim=-1)", f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("hold: one step too long", "held.py",
           "skip = offset % self.period // step", "skip = (offset - 1) % self.period // step",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("hold: wrong row for periods that do not divide", "held.py",
           "times // self.period)", "(times + 1) // self.period)",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("hold: held signals merge whose clocks do not nest", "held.py",
           "if other.period % signal.period == 0:", "if other.period > signal.period:",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("mask: fast modules send messages to slow ones", "reference.py",
           "torch.cat(previous[i:], dim=-1) @ W_hh[i][k].T",
           "torch.cat(previous, dim=-1) @ weight_hh[_rows(k, i, schedule)].T",
           f"{PAPER}::test_forbidden_blocks_stay_zero"),
    Mutant("mask: a step reads the forbidden weights", "step.py",
           "F.linear(h[..., units.start : N], select_units(weight_hh[:, units.start :],",
           "F.linear(h[..., :N].roll(1, -1), select_units(weight_hh,", f"{LAYER}::test_steps_equal_one_call"),
    Mutant("mask: the wrong triangle", "schedule.py",
           "return module[:, None] <= module[None, :]", "return module[:, None] >= module[None, :]",
           f"{SCHEDULE}::test_the_mask_has_the_weights_from_slower_modules"),
    Mutant("mask: forbidden weights are not cleared", "state_dicts.py",
           "local.masked_fill_(forbidden, 0)", "pass", f"{PAPER}::test_forbidden_blocks_stay_zero"),
    Mutant("load: weights of other clocks load in silence", "state_dicts.py",
           "if not equals_stored(pack_integers((", "if False and not equals_stored(pack_integers((", OTHER_CLOCKS),
    Mutant("load: zeros are written into the tensors of the caller", "state_dicts.py",
           "copy = weight.detach().clone()", "copy = weight.detach()", ASSIGNED),
    Mutant("load: one of torch's two biases is dropped", "state_dicts.py",
           "return bias_ih + bias_hh", "return bias_ih", TORCHS_WEIGHTS),
    Mutant("load: a GRU's bias inside the reset product is dropped", "state_dicts.py",
           "bias_ih[2 * N :], bias_hh[2 * N :]", "bias_ih[2 * N :], 0 * bias_hh[2 * N :]", TORCHS_WEIGHTS),
    Mutant("mask: only the first gate is cleared", "state_dicts.py",
           ".to(weight.device).repeat(gates, 1)",
           ".to(weight.device).repeat(gates, 1).logical_and(torch.arange(gates * schedule.hidden_size)[:, None] "
           "< schedule.hidden_size)", ZEROS_LOADED),
    Mutant("stream: forward does not advance the clock of an LSTM", "layer.py",
           "LSTMState(h, c, end)", "LSTMState(h, c, t0)", CHUNKS),
    Mutant("lstm: h and c are exchanged on the way out", "layer.py",
           "(joined[..., :N], joined[..., N:]))", "(joined[..., N:], joined[..., :N]))",
           f"{LAYER}::test_ragged_batches_equal_the_specification"),
    Mutant("memory: the slopes of a gated cell leave out its own state", "inspection/memory.py",
           "if slope.state is not None:", "if False:", MEMORY),
    Mutant("silence: the constant stands outside the reset product", "inspection/silence.py",
           "bias.copy_(add_message(layer.cell, bias, weight[:, units] @ value))",
           "bias[: len(weight)] += weight[:, units] @ value", SILENCE),
    Mutant("schedule: all periods are computed before one is refused", "schedule.py",
           "if period > LONGEST:", "if False:", ABSURD),
    Mutant("schedule: sizes may overflow", "schedule.py", "if sum(sizes) > LONGEST:", "if False:", ABSURD),
    Mutant("inspect: weights need not fit their network", "experiments/inspect/inspected.py",
           "except (RuntimeError, TypeError, ValueError) as error:", "except KeyError as error:", DAMAGED_STORE),
    Mutant("load: a pickled schedule is not checked", "schedule.py",
           "        self.__post_init__()\n", "        pass\n", FORGED),
    Mutant("stream: forward does not advance the clock", "layer.py",
           "State(after, end)", "State(after, t0)", CHUNKS),
    Mutant("gradient: of the specification without ticks, undefined", "reference.py",
           "return torch.cat((states, nobody), dim=-1)", "return states",
           SPECIFIED_NO_TICKS),
    Mutant("trace: a traced layer calls an autograd function", "scan.py",
           "if torch._C._get_tracing_state() is not None:", "if False:", TRACED),
    Mutant("functionalize: the scan calls an autograd function", "scan.py",
           "if is_functionalized():", "if False:", FUNCTIONALIZED),
    Mutant("stream: forward takes t0 beside a state", "step.py",
           "if t0 is not UNSET_CLOCK:", "if False:", UNFIT_STATE),
    Mutant("gradient: of a step without ticks, undefined", "step.py",
           "if not due and not torch.is_grad_enabled():", "if not due:", NO_TICKS),
    Mutant("gradient: of the weights, one tick late", "scan.py",
           "_multiply_pairs(drive_gradient, states[:-1])", "_multiply_pairs(drive_gradient, states[1:])",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("gradient: of the initial state, dropped", "scan.py",
           "states[:-1]), arriving\n", "states[:-1]), arriving * 0\n",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("gradient: of tanh", "scan.py",
           "1 - states * states if", "1 - states if",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("gradient: of relu", "scan.py",
           "threshold_backward(change, factors, 0)", "threshold_backward(change, factors, -1)",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("gradient: second order, cut", "scan.py",
           "_backward(gradient, states, weight, ctx.cell, drive,",
           "_backward(gradient, states.detach(), weight, ctx.cell, drive,",
           f"{BACKENDS}::test_second_order_equals_specification"),
    Mutant("lstm: c is not held with h", "step.py",
           "modules = list(before.split(schedule.sizes, dim=-1))",
           "modules = list((before * torch.eye(1, parts).T).split(schedule.sizes, dim=-1))", CELL_STEPS),
    Mutant("lstm: the gradient of c, of one tick only", "scan.py",
           "arriving_c = g_c[n] + d_c * f[n]", "arriving_c = g_c[n]",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("lstm: the peephole of o reads the c before the tick", "cells.py",
           "o = o + p_o * c\n", "o = o + p_o * before\n",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("gru: messages of slower modules are outside the reset product", "cells.py",
           "torch.cat((gates + to_gates, n, d + to_n), dim=-1)", "torch.cat((gates + to_gates, n + to_n, d), dim=-1)",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("gru: the gradient of the reset gate", "scan.py", "d * (r * (1 - r))", "r * (1 - r)",
           f"{BACKENDS}::test_any_schedule_and_phase_equal_the_specification"),
    Mutant("gradient: forward mode without the weights", "scan.py",
           "operations compute them\n        return _forward(drive, weight,",
           "operations compute them\n        return _forward(drive, forward_ad.unpack_dual(weight).primal,",
           FORWARD_MODE),
    Mutant("gradient: forward mode through an autograd function", "scan.py",
           "if forward_ad._current_level >= 0:", "if False:", FORWARD_TWICE),
    Mutant("layers: the reverse clock starts at t0", "layer.py",
           "else (layout.reverse(x), 0)", "else (layout.reverse(x), t0)",
           f"{LAYER}::test_ragged_batches_equal_the_specification"),
    Mutant("lengths: the padding is read", "cascade.py", "input = mask(input, lengths)", "input = input", PADDING),
    Mutant("lengths: the padding is read in a graph", "cascade.py",
           "input = mask(input, lengths)", "input = input if torch.compiler.is_compiling() else mask(input, lengths)",
           PADDING_IN_GRAPH),
    Mutant("lengths: the state at the end of the batch, not of the sequence", "held.py",
           "if lengths is None:\n            return torch.cat([signal.values[-1]",
           "if True:\n            return torch.cat([signal.values[-1]",
           f"{LAYER}::test_ragged_batches_equal_the_specification"),
    Mutant("lengths: reversed within the batch, not the sequence", "sequences.py",
           "if self.lengths is None:\n            return value.flip(0)", "if True:\n            return value.flip(0)",
           f"{LAYER}::test_ragged_batches_equal_the_specification"),
    Mutant("packed: states in the order inside", "sequences.py",
           "return h.index_select(1, self.packed.unsorted_indices)", "return h",
           f"{LAYER}::test_ragged_batches_equal_the_specification"),
    Mutant("readout: the slowest module is missing", "held.py",
           "for signal in reversed(self.multiply(weight)):",
           "for signal in reversed(self.multiply(weight)[:-1] or self.multiply(weight)):",
           f"{READOUT}::test_readout_of_ticks_equals_linear_of_the_output"),
    Mutant("readout: the output is held first", "held.py",
           "columns = weight.split([module.values.shape[-1] for module in self.modules], dim=1)",
           "return F.linear(self.hold(), weight)\n        columns = []",
           f"{READOUT}::test_readout_of_ticks_equals_linear_of_the_output"),
    Mutant("cost: messages are not added up on the way", "held.py",
           "if other.period % signal.period == 0:", "if False:", f"{COST}::test_messages_of_nested_clocks_telescope"),
    Mutant("cost: the specification runs in the cascade's place", "backends.py",
           "lambda device, dtype: None, cascade)", "lambda device, dtype: None, run_reference)",
           f"{COST}::test_the_recurrence_costs_what_the_schedule_counts"),
    Mutant("cost: hold windows are unrolled whole", "held.py", "or repeats <= count)", "or True)",
           f"{COST}::test_long_periods_cost_nothing"),
    Mutant("step: no dropout", "layer.py",
           "x = F.dropout(x, self.dropout, self.training)\n                weight_ih", "weight_ih",
           f"{LAYER}::test_steps_equal_one_call"),
    Mutant("compile: tangents are dropped", "scan.py", "if torch._C._are_functorch_transforms_active():", "if False:",
           f"{TRANSFORMS}::test_derivatives_inside_a_compiled_function_equal_eager_ones"),
    Mutant("compile: a gradient", "scan.py", "_scan_backward_operator(gradient, states, weight, ctx.cell,",
           "_scan_backward_operator(-gradient, states, weight, ctx.cell,",
           f"{TRANSFORMS}::test_a_compiled_layer_equals_the_eager_one"),
    Mutant("counts: two biases", "schedule.py", "self.hidden_size * (input_size + 1)",
           "self.hidden_size * (input_size + 2)", f"{PAPER}::test_parameter_counts_of_the_tables"),
    Mutant("counts: the cascade counted as the paper counts", "schedule.py",
           "cascade += size * (rows.stop + input_size) / period",
           "cascade += size * (N - rows.start + input_size) / period",
           f"{PAPER}::test_the_cascade_costs_at_most_four_blocks"),
    Mutant("kernel: threads do not flush denormal numbers as the caller does", "kernels/cpu/threads.c",
           "    set_mode(team->mode);\n", "", KERNEL_DENORMALS),
    Mutant("kernel: messages of slower modules are not read", "kernels/cpu/forward.h",
           "const int telescope = plan->nested && i + 1 < plan->call->G;", "const int telescope = 0;", KERNEL),
    Mutant("kernel: fast modules that share a vector are read", "kernels/cpu/plan.h",
           "m->tail = first_lanes((m->end - 1) % LANES + 1);", "m->tail = first_lanes(LANES);", KERNEL_NAN),
    Mutant("kernel: sequences go on beyond their end", "kernels/cpu/forward.h",
           "while (!one && active > 0 && chunk.length[active - 1] <= t) active--;", "", KERNEL),
    Mutant("kernel: the last message has a product with units that do not hear it", "kernels/cpu/backward.h",
           "if (heard < active) separate_pairs(", "if (0) separate_pairs(",
           f"{NONFINITE}::test_the_kernel_spoils_no_number_that_the_specification_does_not_spoil"),
    Mutant("cascade: infinite states have products with weights of modules that do not hear them", "cascade.py",
           "if not all(hear)}", "if not hear}",
           f"{NONFINITE}::test_the_cascade_spoils_no_number_that_the_specification_does_not_spoil"),
    Mutant("cascade: every faster module is said to hear the last message", "cascade.py",
           "return ticks & (end // faster > end // period * period // faster)", "return ticks | (end >= 0)",
           f"{NONFINITE}::test_the_cascade_spoils_no_number_that_the_specification_does_not_spoil"),
    Mutant("cascade: infinite states beyond the end of a sequence have products", "cascade.py",
           "if lengths is not None and _may_spoil(", "if False and _may_spoil(",
           f"{NONFINITE}::test_the_cascade_spoils_no_number_that_the_specification_does_not_spoil"),
    Mutant("readout: an initial state that is never held has a product", "held.py",
           "if matters and not are_known_finite(values[0]):", "if False:",
           f"{NONFINITE}::test_an_initial_state_that_is_never_held_spoils_no_gradient_of_a_readout"),
    Mutant("kernel: infinite weights of units that do not hear a message are multiplied", "kernels/cpu/backward.h",
           "        if (heard == active)\n", "        if (1)\n",
           f"{NONFINITE}::test_the_kernel_spoils_no_number_that_the_specification_does_not_spoil"),
    Mutant("precision: the output is not rounded", "kernels/backend.py",
           "None if tensor is None else tensor.to(dtype) for", "tensor for",
           f"{PRECISION}::test_half_precision_is_as_exact_as_torchs"),
    Mutant("scan: relu stops the gradient of a state that is NaN", "scan.py",
           "torch.ops.aten.threshold_backward(change, factors, 0)", "change * (factors > 0)",
           f"{NONFINITE}::test_the_cascade_spoils_no_number_that_the_specification_does_not_spoil"),
    Mutant("kernel: gradients of messages do not reach slower modules", "kernels/cpu/backward.h",
           "if (plan->nested && i + 1 < c->G) {", "if (0) {", KERNEL),
    Mutant("kernel: the initial state has no part in the weights' gradient", "kernels/cpu/backward.h",
           "multiply_pairs(&r, i, cursors[i].slot + 1);", "multiply_pairs(&r, i, cursors[i].slot);", KERNEL),
    Mutant("kernel: a gradient is used twice", "kernels/cpu/backward.h",
           "if (k < taken) rest = drop(rest, taken - k);", "", KERNEL),
    Mutant("kernel: a part of the batch is missing in the sum", "kernels/cpu/backward.h",
           "for (int64_t other = 1; other < groups;", "for (int64_t other = 2; other < groups;", KERNEL),
    Mutant("kernel: every product starts the sum again", "kernels/cpu/backward.h",
           "r->cursors[i].begun = 1;", "r->cursors[i].begun = 0;", KERNEL_SUMS),
    Mutant("kernel: panels are read as rows", "kernels/cpu/vectors.h",
           "p->Y + p->depth * at : p->Y + at", "p->Y + at : p->Y + at", KERNEL),
    Mutant("single sequence: a module hears slower ones a tick too late", "kernels/cpu/single.h",
           "const int64_t row = n > 0 ? ticks_until(span, slower, t + 1) : 0;",
           "const int64_t row = n > 0 ? ticks_until(span, slower, t) : 0;", KERNEL_SINGLE),
    Mutant("single sequence: the initial state says nothing to faster modules", "kernels/cpu/single.h",
           "multiply_messages(span, m, starts ? 0 : from + 1, to + 1)",
           "multiply_messages(span, m, from + 1, to + 1)", KERNEL_SINGLE),
    Mutant("single sequence: the last message of a span is forgotten", "kernels/cpu/single.h",
           "            copy(plan->memory + m->sent, plan->memory + m->sent + last * m->reach, m->reach);\n", "",
           KERNEL_SINGLE),
    Mutant("single sequence: the output begins with the state before the span", "kernels/cpu/single.h",
           "ticks_until(span, m, t + 1) * m->K", "ticks_until(span, m, t) * m->K", KERNEL_SINGLE),
    Mutant("kernel: the polynomial of tanh goes too far", "kernels/cpu/vectors.h",
           "y < 0.55f", "y < 0.7f", KERNEL_TANH),
    Mutant("kernel: a step trusts the state that it remembers", "kernels/cpu/step.h",
           "known = memcmp(messages + b * row, (const real *)c->h + b * c->h_b, (size_t)N * sizeof(real)) == 0;",
           "known = 1;", KERNEL_STATE),
    Mutant("kernel: a step trusts the weights that it remembers", "kernels/cpu/step.h",
           "if (!same_weights(plan)) {", "if (0) {", KERNEL_WEIGHTS),
    Mutant("kernel: replicas share the first one's input", "kernels/cpu/sequence.py",
           "fields[FIELD_INPUT_S] = input.stride(0)", "fields[FIELD_INPUT_S] = 0",
           f"{TRANSFORMS}::test_vmap_over_replicas_equals_a_loop"),
    Mutant("inference: a bias of another dtype is read as if it were not", "kernels/eligibility.py",
           "tensor.shape == shape and tensor.dtype is dtype", "tensor.shape == shape", KERNEL_ODD),
    Mutant("kernel: tensors that lie otherwise are read as if they did not", "kernels/tensors.py",
           "    size = 1\n    for d in range(1, dims + 1):", "    size = 1\n    for d in ():", KERNEL_ODD),
    Mutant("operators: the initial state has no second derivative", "kernels/operators.py",
           "None if h0 is None else g_h0}", "None}", SECOND_ORDER),
    Mutant("operators: peepholes have no gradient", "kernels/operators.py",
           "PLACE_OF_WEIGHT_CH: g_weight_ch})", "PLACE_OF_WEIGHT_CH: None})", GATED_OPERATORS),
    Mutant("operators: the cotangent of the peepholes' gradient is dropped", "kernels/operators.py",
           "{PLACE_OF_BACKWARD_WEIGHT_CH: g_weight_ch,", "{PLACE_OF_BACKWARD_WEIGHT_CH: None,", GATED_OPERATORS),
    Mutant("vmap: the gates of replicas are not kept", "kernels/autograd.py",
           "ctx.save_for_backward(*tensors, ticks, kept[0] if kept else None)",
           "ctx.save_for_backward(*tensors, ticks, kept[0] * 0 if kept else None)", GATED_REPLICAS),
    Mutant("operators: the shortcut hides a call from those that record it", "kernels/operators.py",
           "and (keys & torch._C._after_autograd_keyset).raw_repr() == plain:", "and True:", COMPILED_FORWARD),
    Mutant("operators: a graph without gradients keeps the ticks", "kernels/backend.py",
           "keep_ticks = wants_gradient((input, weight_ih, weight_hh, bias, weight_ch))",
           "keep_ticks = True", COMPILED_FORWARD),
    Mutant("operators: gradients that are absent are filled with zeros", "kernels/operators.py",
           "ctx.set_materialize_grads(False)", "pass", COMPILED_BACKWARD),
    Mutant("counts: the message of the initial state is left out", "kernels/flops.py",
           "rows * size * units.start", "ticks * size * units.start", "tests/kernels/test_flops.py"),
    Mutant("memory: zeros without memory are refused", "kernels/tensors.py",
           "if tensor._is_zerotensor():", "if False:",
           f"{KERNEL_MEMORY}::test_zeros_without_memory_compute_as_zeros_with_memory"),
    Mutant("memory: a freed gradient counts as none", "kernels/cpu/sequence.py",
           "safe = safe and at_g_held >= LOW_ADDRESS", "pass",
           f"{KERNEL_MEMORY}::test_gradients_without_memory_are_zeros_and_freed_ones_an_error"),
    Mutant("inference: a bias that is computed is left out", "kernels/eligibility.py",
           "or (bias is None) == has_bias", "", KERNEL_ODD),
    Mutant("kernel: an output past the caches lacks the start of each row", "kernels/cpu/vectors.h",
           "for (int64_t i = 0; i < n; i += LANES) {\n        const vec value",
           "for (int64_t i = LANES; i < n; i += LANES) {\n        const vec value", KERNEL_LARGE),
    Mutant("gpu: a module's last tick is left out", "kernels/gpu/tables.py",
           "ticks = (T - 1 - first_tick) // period + 1 if first_tick < T else 0",
           "ticks = (T - 1 - first_tick) // period if first_tick < T else 0", GPU_MODULES),
    Mutant("gpu: a table is kept for the first stream that reads it", "kernels/gpu/tables.py",
           "if stream not in plan.streams:", "if not plan.streams:",
           "tests/kernels/test_gpu.py::test_a_table_is_kept_for_every_stream_that_reads_it"),
    Mutant("gpu: the address of a program is cut to 32 bits", "kernels/gpu/driver.py",
           "_address(handle), columns,", "handle, columns,",
           "tests/kernels/test_gpu.py::test_a_launch_passes_every_argument_in_its_full_size"),
    Mutant("gpu: programs of tf32 compute where it is off", "kernels/gpu/launch.py",
           'return 1 if allows_tf32("rnn") else 3', "return 1",
           f"{SCAN}::test_the_switch_of_tf32_is_read_at_every_call"),
    Mutant("gpu: a module that the kernel does not take is not refused", "kernels/gpu/launch.py",
           'if reason is not None:\n        raise RuntimeError(f"the kernel',
           'if False:\n        raise RuntimeError(f"the kernel',
           f"{SCAN}::test_the_switch_of_tf32_is_read_at_every_call"),
    Mutant("small delay: a module reads the states of two steps ago", "kernels/gpu/cuda/small_forward.cu",
           "swap(states, other_states);", "", SMALL_EQUALS),
    Mutant("small phase: every module ticks one step late", "kernels/gpu/cuda/small.cuh",
           "period = module.period, left = module.first_tick;", "period = module.period, left = module.first_tick + 1;",
           SMALL_EQUALS),
    Mutant("small: the phase is off by one in the second chunk", "kernels/gpu/cuda/small.cuh",
           "* period - CHUNK;", "* period - CHUNK + 1;", f"{SMALL}::test_many_units_equal_the_specification"),
    Mutant("small: a unit ticks once in a chunk", "kernels/gpu/cuda/small.cuh",
           "pattern |= 1u << k;", "pattern = 1;", SMALL_EQUALS),
    Mutant("small: a unit hears the infinite states of faster modules", "kernels/gpu/cuda/small_forward.cu",
           "is_spoilt = is_due && sum != sum;", "is_spoilt = false;", SMALL_BROKEN),
    Mutant("small: the state of a tick is stored in the row before", "kernels/gpu/cuda/small_forward.cu",
           "            ticks += row_size;", "            if (t > 1) ticks += row_size;", SMALL_EQUALS),
    Mutant("small: the final state is that after the batch's last step", "kernels/gpu/cuda/small_forward.cu",
           "if (counts) end_state = state;", "end_state = state;",
           f"{SMALL}::test_ticks_equal_those_of_the_cascade"),
    Mutant("small: the gradient of a tick is held", "kernels/gpu/cuda/small_backward.cu",
           "carried = is_due ? 0 : whole;", "carried = whole;", SMALL_EQUALS),
    Mutant("small: units of a later group of 16 have no gradient", "kernels/gpu/cuda/small_backward.cu",
           "reach |= (memory.group_due[16 * c] >> k & 1) << c;", "reach |= memory.group_due[0] >> k & 1;",
           f"{SMALL}::test_many_units_equal_the_specification"),
    Mutant("small: the final state's gradient enters at the end of the batch", "kernels/gpu/cuda/small_backward.cu",
           "if (t == length - 1) g += g_final;", "if (t == T - 1) g += g_final;",
           f"{SMALL}::test_ticks_equal_those_of_the_cascade"),
    Mutant("small: weights receive gradients from states that nobody hears", "kernels/gpu/cuda/small_gradients.cu",
           "if (ticks_at(module, t) && ", "if (", SMALL_BROKEN),
    Mutant("small: the weights' gradient reads the state after the step", "kernels/gpu/cuda/small_backward.cu",
           "state = to_float(earlier[k]);", "", SMALL_EQUALS),
    Mutant("small: a part of the weights' gradients is left out", "kernels/gpu/small.py",
           "count = count_blocks(lines, part_lines)", "count = max(lines // part_lines, 1)",
           f"{SMALL}::test_long_sequences_are_summed_in_parts"),
    Mutant("scan delay: a message is heard at the tick that sends it", "kernels/gpu/cuda/scan_forward.cu",
           "int time = (int)m.first_tick - 1 - period,", "int time = (int)m.first_tick - period,", SCAN_ALONE),
    Mutant("scan delay: with other periods, a message is heard at the tick that sends it",
           "kernels/gpu/cuda/scan_forward.cu", "(issued - 1) * m.period - 1,", "(issued - 1) * m.period,", SCAN_ALONE),
    Mutant("scan phase: a module's first tick is that of another clock", "kernels/gpu/tables.py",
           "min(-t0 % period, T)", "min(t0 % period, T)", SCAN_ALONE),
    Mutant("scan: the messages of all modules but the next slower one are lost", "kernels/gpu/cuda/scan_forward.cu",
           "telescope = NESTED && j + 1 < call.G;", "telescope = false;", SCAN_ALONE),
    Mutant("scan: a module holds the row before", "kernels/gpu/cuda/modules.cuh",
           "t >= first ? (int)((uint32)(t - first)", "t > first ? (int)((uint32)(t - first)", SCAN_ALONE),
    Mutant("scan: a module does not wait for the message that it hears", "kernels/gpu/cuda/scan_forward.cu",
           "await_parts(flag2 + turn * FLAG_STRIDE, call, row2 + 1, ready[turn]);",
           "await_parts(flag2 + turn * FLAG_STRIDE, call, row2, ready[turn]);", SCAN_ALONE),
    Mutant("scan: messages do not wait for the last of their states", "kernels/gpu/cuda/scan_forward.cu",
           "(int)first + rows, ready);", "(int)first + rows - 1, ready);", SCAN_ALONE),
    Mutant("scan: a slower module does not wait for the gradients of its window", "kernels/gpu/cuda/scan_backward.cu",
           "(int)q.ticks + 1 - low[rows - 1], ready);", "(int)q.ticks - low[rows - 1], ready);", SCAN_ALONE),
    Mutant("scan: a part takes numbers of another row", "kernels/gpu/cuda/modules.cuh",
           "complete = complete && words[i][line].y == (uint32)tag && words[i][line].w == (uint32)tag;",
           "complete = complete && words[i][line].y != 0;", SCAN_SPREAD),
    Mutant("scan: rows are exchanged in one place", "kernels/gpu/cuda/modules.cuh",
           "((tag % 2 * blocks + block)", "(block", SCAN_SPREAD),
    Mutant("scan: what lies behind the last unit is not zero", "kernels/gpu/cuda/scan_forward.cu",
           "i < TURNS * BUFFERS * ROW_BYTES / 4;", "i < TURNS * ROW_BYTES / 4;", SCAN_ALONE),
    Mutant("scan: the last row of a window has no gradient", "kernels/gpu/cuda/scan_backward.cu",
           ": (int)q.ticks + 1;", ": (int)q.ticks;", SCAN_ALONE),
    Mutant("scan: the last row lacks the gradient of the last step", "kernels/gpu/cuda/hold.cu",
           "if (end > call.T) end = call.T;", "if (end >= call.T) end = call.T - 1;", SCAN_ALONE),
    Mutant("scan: gradients behind the end of a sequence count", "kernels/gpu/cuda/hold.cu",
           "last = end < length ? end : length;", "last = end;", SCAN_ALONE),
    Mutant("scan: the input behind the end of a sequence is read", "kernels/gpu/cuda/drive.cu",
           "there[i] = t < call.lengths[s * call.B + b];", "there[i] = true;", SCAN_ALONE),
    Mutant("scan: the final state is that of the step after the last", "kernels/gpu/cuda/scan_forward.cu",
           "end = call.lengths == nullptr ? n : row_at(call.lengths[s * B + at] - 1,",
           "end = call.lengths == nullptr ? n : row_at(call.lengths[s * B + at],", SCAN_ALONE),
    Mutant("scan: a unit of relu that is off has a gradient", "kernels/gpu/cuda/scan_backward.cu",
           "factors[i][k] <= 0 ? 0", "factors[i][k] < 0 ? 0", SCAN_ALONE),
    Mutant("scan: a part of a sum that warps share is left out", "kernels/gpu/cuda/modules.cuh",
           "other < SPLIT - 1; other++)\n                sums[n][0]",
           "other < SPLIT - 2; other++)\n                sums[n][0]", SCAN_SPREAD),
    Mutant("scan: rows of messages overlap", "kernels/gpu/tables.py",
           "message_fragments += (ticks + 1) * first_block", "message_fragments += ticks * first_block", SCAN_ALONE),
    Mutant("scan: the drives of the last ticks are not computed", "kernels/gpu/scan.py",
           "-(-n * tiles // tall)", "max(n * tiles // tall, 1)", SCAN_ALONE),
    Mutant("scan: flags begin as they are found in memory", "kernels/gpu/cuda/pack.cu",
           "i < call.flag_count;", "i < 8;", SCAN_ALONE),
    Mutant("scan: blocks begin in another order than their numbers", "kernels/gpu/cuda/modules.cuh",
           "int64 number = *(int *)memory;", "int64 number = block_number();", SCAN_WAITS),
    Mutant("scan: the weights of a block do not fit its registers", "kernels/gpu/scan.py",
           "if warps * tiles >= blocks and gates * tiles * steps * words <= registers:",
           "if warps * tiles >= blocks:",
           f"{SCAN}::test_every_layout_fits_a_block"),
    Mutant("scan: an LSTM has more blocks than run at once", "kernels/gpu/scan.py",
           "return other if 4 * blocks <= 3 * busy else layout", "return other",
           f"{GATED_SCAN}::test_an_lstm_has_more_blocks_if_all_of_them_run_at_once"),
    Mutant("compiler: a changed header does not change the program", "kernels/gpu/compiler.py",
           "files += [one for one in", "[one for one in", COMPILER),
    Mutant("compiler: code for another device is taken from the cache", "kernels/gpu/compiler.py",
           "_find_version(load_compiler()), *job",
           "_find_version(load_compiler()), *job[:2], job.options[1:]", COMPILER),
    Mutant("compiler: code of another compiler is taken from the cache", "kernels/gpu/compiler.py",
           "_find_version(load_compiler()), *job", "*job", COMPILER),
    Mutant("compiler: damaged code is taken from the cache", "kernels/gpu/compiler.py",
           "if content[:DIGEST] == _digest(file, content[DIGEST:]):", "if len(content) > DIGEST:", COMPILER),
    Mutant("compiler: a file that was renamed is taken for another program", "kernels/gpu/compiler.py",
           "sha256(file.name.encode() + code)", "sha256(code)", COMPILER),
    Mutant("compiler: code from a folder in which others may write runs", "kernels/gpu/compiler.py",
           "not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)", "True", COMPILER),
    Mutant("compiler: code from a folder of somebody else runs", "kernels/gpu/compiler.py",
           "about.st_uid == os.geteuid() and", "", COMPILER),
    Mutant("compiler: a file that others may write runs", "kernels/gpu/compiler.py",
           "if not _is_trusted(os.fstat(opened.fileno())):", "if False:", COMPILER),
    Mutant("compiler: every thread compiles the same program", "kernels/gpu/compiler.py",
           "_locks.setdefault(key, Lock())", "Lock()", COMPILER),
    Mutant("compiler: a relative folder goes along with the process", "kernels/gpu/compiler.py",
           "Path(chosen).absolute()", "Path(chosen)", COMPILER),
    Mutant("compiler: a full disk ends the call", "kernels/gpu/compiler.py",
           "private=True)\n    except OSError", "private=True)\n    except KeyError",
           COMPILER),
    Mutant("scan turns: a row is announced for another tile", "kernels/gpu/cuda/scan_forward.cu",
           "announce_rows(flag + last_turn * next_flag, counted + last_turn,",
           "announce_rows(flag + turn * next_flag, counted + turn,", SCAN_TURNS),
    Mutant("scan turns: a row is fetched before it is announced", "kernels/gpu/cuda/scan_forward.cu",
           "parts * next_row, ready_rows);", "parts * (next_row - 1), ready_rows);", SCAN_TURNS),
    Mutant("scan turns: a fetched row is read before it has come", "kernels/gpu/cuda/scan_forward.cu",
           "await_copies<0>();", "", SCAN_TURNS),
    Mutant("scan turns: the gradients of a row are read before they have come", "kernels/gpu/cuda/scan_backward.cu",
           "await_copies<0>();", "", SCAN_TURNS),
    Mutant("scan turns: the gradients of another row are fetched", "kernels/gpu/cuda/scan_backward.cu",
           "m.g_messages + next_row * message_row", "m.g_messages + row * message_row", SCAN_TURNS),
    Mutant("scan: loads take the places of numbers that are still needed", "kernels/gpu/cuda/scan_backward.cu",
           "load_ahead((place + AHEAD + i) % LOADED, 0);", "load_ahead((place + i) % LOADED, 0);", SCAN_ALONE),
    Mutant("scan: drives take the places of those that are still needed", "kernels/gpu/cuda/scan_forward.cu",
           "load_ahead(own[(place + AHEAD + i) % LOADED], heard", "load_ahead(own[(place + i) % LOADED], heard",
           SCAN_ALONE),
    Mutant("scan gated: the gradients of one gate are gathered for all", "kernels/gpu/cuda/scan_backward.cu",
           "(const piece *)(from + q * plane)", "(const piece *)from", f"{GATED_LAYOUTS}[tf32]"),
    Mutant("scan turns: gradients are gathered before those of faster units are there",
           "kernels/gpu/cuda/scan_backward.cu",
           "if (FETCHED && j > 1)", "if (false)",
           f"{GATED_SCAN}::test_no_row_is_announced_before_all_of_its_gradients_are_there"),
    Mutant("gpu: a launch has more rows than a device takes", "kernels/gpu/launch.py",
           "return MOST_ROWS // max(CELLS[cell].gates, CELLS[cell].biases)", "return MOST_ROWS",
           f"{GATED_SCAN}::test_more_replicas_than_a_launch_takes_run_in_parts"),
    Mutant("scan gated: the reset gate is left out of its product", "kernels/gpu/cuda/cells.cuh",
           "outside + r * sums[2]", "outside + sums[2]", GRU_LAYOUTS),
    Mutant("scan gated: the peephole of o reads the c before the tick", "kernels/gpu/cuda/cells.cuh",
           "peepholes[2] * tick.state", "peepholes[2] * state", GATED_PEEPHOLES),
    Mutant("scan gated: the gradient of c passes a closed gate f", "kernels/gpu/cuda/cells.cuh",
           "later *= f;", "", GATED_LAYOUTS),
    Mutant("scan gated: the gradient of a GRU's state does not pass gate z", "kernels/gpu/cuda/cells.cuh",
           "later = g * z;", "later = 0;", GRU_LAYOUTS),
    Mutant("scan gated: the peephole of f has no part in the gradient of c", "kernels/gpu/cuda/cells.cuh",
           "later += peepholes[0] * sums[0] + peepholes[1] * sums[1];", "later += peepholes[0] * sums[0];",
           GATED_PEEPHOLES),
    Mutant("scan gated: the final c is that of the last tick, whatever the lengths", "kernels/gpu/cuda/scan_forward.cu",
           "row == last[turn][k % 2] && inside[i][k / 2] && at < B", "row == n && inside[i][k / 2] && at < B",
           GATED_LENGTHS),
    Mutant("scan gated: the gradient of the final c enters at the last tick, whatever the lengths",
           "kernels/gpu/cuda/scan_backward.cu", "else if (row == last[turn][k % 2] &&", "else if (row == n &&",
           GATED_LENGTHS),
    Mutant("scan gated: backward reads the c of another row", "kernels/gpu/cuda/scan_backward.cu",
           "call.kept_s + at - kept_row);", "call.kept_s + at);", GATED_LAYOUTS),
    Mutant("scan gated: the gradients of the peepholes leave out other lanes", "kernels/gpu/cuda/scan_backward.cu",
           "sum += shuffle_xor(sum, 2);", "", GATED_PEEPHOLES),
    Mutant("scan gated: a gate has the weights of the first one", "kernels/gpu/cuda/modules.cuh",
           "packed + q * gate + n % TILES * stride", "packed + n % TILES * stride", GATED_LAYOUTS),
    Mutant("gradients gated: a GRU's input has the gradients of the reset product", "kernels/gpu/cuda/gradients.cu",
           "GATES == 3 && gate == 2 ? 3 : gate;", "gate;", GRU_LAYOUTS),
    Mutant("gradients gated: the two last biases of a GRU change places", "kernels/gpu/cuda/gradients.cu",
           "plane >= 2 ? 5 - plane : plane;", "plane >= 2 ? plane : plane;", GRU_LAYOUTS),
    Mutant("gradients: the input of the step before is read", "kernels/gpu/cuda/gradients.cu",
           "const uint32 t = first_tick + row * period;", "const uint32 t = row * period;", GRADIENTS_ANY),
    Mutant("gradients: the input behind the end of a sequence is read", "kernels/gpu/cuda/gradients.cu",
           "if (there && call.lengths != nullptr) there = t < call.lengths[s * call.B + b];", "", GRADIENTS_ANY),
    Mutant("gradients: forbidden blocks are not zero", "kernels/gpu/cuda/gradients.cu",
           "if (u < table->first_unit + table->size) {", "if (true) {", GRADIENTS_ANY),
    Mutant("gradients: weights receive gradients from states that nobody hears", "kernels/gpu/cuda/gradients.cu",
           "if (row_at(until, q.first_tick, q.period) > row_at(after, q.first_tick, q.period))", "if (true)",
           f"{GRADIENTS}::test_no_number_is_spoilt_that_the_specification_does_not_spoil"),
    Mutant("gradients: parts after the first are left out", "kernels/gpu/cuda/gradients.cu",
           "for (int i = 0; i < count; i++) {\n#if OUTPUT_PIECE", "for (int i = 0; i < 1; i++) {\n#if OUTPUT_PIECE",
           GRADIENTS_LARGE),
    Mutant("gradients: a stage is read before it has come", "kernels/gpu/cuda/gradients.cu",
           "        await_copies<STAGES - 2>();\n        join_block();\n        if (n +",
           "        await_copies<STAGES - 1>();\n        join_block();\n        if (n +", GRADIENTS_LARGE),
    Mutant("gradients: a stage is overwritten while it is read", "kernels/gpu/cuda/gradients.cu",
           "        if (n + STAGES - 1 < count) copy_stage(n + STAGES - 1);",
           "        if (n + STAGES < count) copy_stage(n + STAGES);", GRADIENTS_LARGE),
    Mutant("gradients: modules that do not tick change the input's gradient", "kernels/gpu/cuda/gradients.cu",
           "(uint32)module->period == 0)", "(uint32)module->period >= 0)", GRADIENTS_ANY),
    Mutant("gradients: blocks of one module have the same parts", "kernels/gpu/cuda/gradients.cu",
           "before + u / HEIGHT * parts.senders + v / WIDTH;", "before + v / WIDTH;", GRADIENTS_LARGE),
    Mutant("backends: advice moves an LSTM with peepholes", "backends.py",
           "batch = None if has_peepholes else input.shape[1]", "batch = input.shape[1]",
           "tests/core/test_backends.py::test_advice_does_not_move_an_lstm_with_peepholes"),
    Mutant("gpu: a GRU of several modules is stepped with as many blocks as one module", "kernels/gpu/launch.py",
           'most = MOST_BLOCKS_OF_GRU if cell == "gru" and schedule.modules > 1 else MOST_BLOCKS',
           "most = MOST_BLOCKS", "tests/kernels/test_gpu.py::test_auto_leaves_modules_to_other_backends"),
    Mutant("sweep: lines of other cells are timed again", "bench/sweep.py",
           '(row["layer"], row["inputs"]) != (layer, INPUTS)', 'row["inputs"] != INPUTS',
           "tests/bench/test_sweep.py::test_the_committed_file_has_lines_to_time_again"),
    Mutant("sweep: a row of a file may have any sizes", "bench/sweep_file.py",
           "type(value) is int and value > 0, ", "True, ",
           "tests/bench/test_sweep.py::test_a_file_with_a_wrong_row_is_refused"),
    Mutant("sweep: a wrong rival is left out in silence", "bench/sweep.py",
           "for candidate in (one, theirs, *others)) if note", "for candidate in (one, theirs)) if note",
           "tests/bench/test_sweep.py::test_rivals_are_checked_and_timed_beside_the_backend_that_runs"),
    Mutant("sweep: lines of another layer are not timed", "bench/sweep.py",
           "== (layer, INPUTS)", "!= (None, None)",
           "tests/bench/test_sweep.py::test_all_else_in_the_file_stays"),
    Mutant("sweep: a sweep from another device is resumed", "bench/sweep_file.py",
           "if found.get(field) != environment.get(field):", "if False:",
           "tests/bench/test_sweep.py::test_a_sweep_of_another_environment_is_not_resumed"),
    Mutant("sweep: lines with an error count as timed", "bench/gpu_command.py",
           "[row for row in rows if not has_error(row)]", "rows",
           "tests/bench/test_sweep.py::test_lines_with_an_error_are_timed_again"),
    Mutant("sweep: a line that ends the sweep comes first again", "bench/gpu_command.py",
           "options.layer) != [case])", "options.layer) == [case])",
           "tests/bench/test_sweep.py::test_a_line_that_ends_the_sweep_is_timed_again_last"),
    Mutant("tf32: an older torch allows it everywhere", "kernels/precision.py",
           "return bool(old.allow_tf32)", "return True",
           "tests/kernels/test_tf32_switches.py"),
    Mutant("sweep: the file is empty until the first line is timed", "bench/gpu_command.py",
           "file = RecordFile(options.json, record)", "file = RecordFile(options.json, {})",
           "tests/bench/test_sweep.py::test_a_sweep_that_is_killed_before_its_first_line_loses_none"),
    Mutant("cudnn delay: a module hears the states of its own tick", "cudnn.py",
           "signal.at(start + period - 1, period", "signal.at(start + period, period", CUDNN_LENGTHS),
    Mutant("cudnn: the weights of slower modules stand in reverse order", "cudnn.py",
           "period, n) for module in slower]", "period, n) for module in reversed(slower)]", CUDNN_LENGTHS),
    Mutant("cudnn: an LSTM runs on beyond a sequence's end", "cudnn.py",
           "if has_lengths and cell", "if False and cell", CUDNN_LENGTHS),
    Mutant("cudnn: gate f closes beyond a sequence's end", "cudnn.py",
           "= -SATURATED, SATURATED", "= -SATURATED, -SATURATED", CUDNN_LENGTHS),
    Mutant("cudnn: a sequence ends one step later", "cudnn.py",
           "steps[:, None] >= lengths", "steps[:, None] > lengths", CUDNN_LENGTHS),
    Mutant("cudnn: h is that of the last tick, whatever the lengths", "cudnn.py",
           "h = [super().final()[None]]", "pass", CUDNN_LENGTHS),
    Mutant("cudnn: the lengths of a chunk count from its own start", "cudnn.py",
           "period + (start + period - t0)", "period + (start + period - clock)", CUDNN_CHUNKS),
    Mutant("cudnn: every chunk begins from the first state", "cudnn.py",
           "states = [module.final[0] for module in parts[-1]]", "pass", CUDNN_CHUNKS),
    Mutant("cudnn phase: every chunk begins at the same clock", "cudnn.py",
           "schedule, t0 + begin, t0,", "schedule, t0, t0,", CUDNN_CHUNKS),
    Mutant("cudnn: a module does not wait for the slower ones", "cudnn.py",
           "streams[i].wait_stream(streams[i + 1])", "pass", CUDNN_STREAMS),
    Mutant("cudnn: a module does not wait for the caller", "cudnn.py",
           "stream.wait_stream(main)", "pass", CUDNN_STREAMS),
    Mutant("cudnn: the memory of slower modules is free before it is read", "cudnn.py",
           "_lend(tensor, streams[i])", "pass", CUDNN_STREAMS),
    Mutant("cudnn: the memory of the input is free before it is read", "cudnn.py",
           "for tensor in (input, lengths, state, *own):", "for tensor in (lengths, state, *own):", CUDNN_STREAMS),
    Mutant("cudnn: streams are used for modules that wait for themselves", "cudnn.py",
           "or min(schedule.sizes) <= LARGEST_PERSISTENT", "",
           f"{CUDNN}::test_time_is_cut_for_large_modules_on_a_gpu_only"),
    Mutant("cudnn: a GRU's inner bias stands in the place of gate r", "cudnn_layer.py",
           "zeros[: 2 * K], bias[rows:]", "bias[rows:], zeros[: 2 * K]", CUDNN_PACKING),
    Mutant("cudnn: the gradient of a GRU's inner bias is that of gate r", "cudnn_layer.py",
           "g_second[2 * weight_hh.shape[1] :]", "g_second[: weight_hh.shape[1]]", CUDNN_ALONE),
    Mutant("cudnn: a missing bias has a gradient", "cudnn_layer.py",
           "return *(gradient if want else None for gradient, want",
           "return *(gradient if want is not None else None for gradient, want", CUDNN_LENGTHS),
    Mutant("cudnn: a second backward pass reads what the first has overwritten", "cudnn_layer.py",
           "reserve = reserve.clone() if _keeps_graph() else reserve", "pass",
           f"{CUDNN}::test_backward_can_be_repeated_if_the_graph_is_kept"),
    Mutant("cudnn: what is kept is always copied", "cudnn_layer.py",
           "if _keeps_graph() else reserve", "if True else reserve",
           f"{CUDNN}::test_what_the_forward_pass_keeps_is_copied_only_if_the_graph_is_kept"),
    Mutant("cudnn: gradients of gradients are constants", "cudnn_layer.py",
           "if torch.is_grad_enabled() or need_cascade", "if need_cascade",
           f"{CUDNN}::test_second_derivatives_of_one_module_equal_the_specification"),
    Mutant("cudnn: gradients of gradients take h for c", "cudnn_layer.py",
           "for gradient in (g_h, g_c)]", "for gradient in (g_c, g_h)]",
           f"{CUDNN}::test_second_derivatives_of_a_part_of_an_lstms_state_equal_the_specification"),
    Mutant("cudnn: there are fewer zeros than missing biases", "cudnn_layer.py",
           "max(B * K, 2 * rows)", "B * K", f"{CUDNN}::test_a_layer_equals_torchs"),
    Mutant("cudnn: the product of a readout skips a tick", "cudnn.py",
           "F.linear(self.runs[0].output, weight)", "F.linear(self.runs[0].signal.values[:-1], weight)",
           f"{CUDNN}::test_a_readout_equals_its_product_with_the_output"),
    Mutant("gru steps delay: a module hears the states of its own tick", "gru_steps.py",
           "inner, start + period - 1, period,", "inner, start + period, period,", ANY_GRU_ON_CUDNN),
    Mutant("gru steps: the inner bias stands in the place of gate r", "gru_steps.py",
           "F.pad(bias, (2 * len(bias), 0))", "F.pad(bias, (0, 2 * len(bias)))", ANY_GRU_ON_CUDNN),
    Mutant("gru steps: every message has the inner bias", "gru_steps.py",
           "        inner = None\n", "", ANY_GRU_ON_CUDNN),
    Mutant("gru steps: a message has the gradient of the input", "gru_steps.py",
           "torch.stack(to_inputs) if wanted[0] else None, g_messages",
           "torch.stack(to_inputs) if wanted[0] else None, torch.stack(to_inputs)", GRU_ON_CUDNN_ALONE),
    Mutant("gru steps: a message alone has no gradient", "gru_steps.py",
           "if wanted[1] or wanted[2] else None", "if wanted[2] else None", GRU_ON_CUDNN_ALONE),
    Mutant("gru steps: the gradient of the output at the last tick is lost", "gru_steps.py",
           "arriving + last", "arriving", ANY_GRU_ON_CUDNN),
    Mutant("gru steps: the gradient of the weights reads the states after a tick", "gru_steps.py",
           "before = torch.cat((h0[None], output[:-1]))", "before = output", GRU_ON_CUDNN_ALONE),
    Mutant("gru steps: the messages that second derivatives need are overwritten", "gru_steps.py",
           "messages.clone(), weight_hh", "messages, weight_hh",
           f"{GRU_ON_CUDNN}::test_second_derivatives_equal_the_specification"),
    Mutant("gru steps: gradients of gradients are constants", "gru_steps.py",
           "if torch.is_grad_enabled() or need_cascade", "if need_cascade",
           f"{GRU_ON_CUDNN}::test_second_derivatives_equal_the_specification"),
    Mutant("gru steps: rows that nobody hears have a product", "gru_steps.py",
           "F.linear(values[begin:end], weight, inner)", "F.linear(values, weight, inner)[begin:end]",
           f"{GRU_STEPS}::test_a_state_that_is_not_heard_spoils_no_gradient"),
    Mutant("gru steps: inference keeps what the gradients would need", "gru_steps.py",
           "        if keep:\n", "        if True:\n",
           f"{GRU_STEPS}::test_without_gradients_nothing_is_kept_and_no_argument_is_changed"),
    Mutant("compiler: the umask decides who may write to a program", "kernels/gpu/compiler.py",
           ", private=True)", ")", f"{COMPILER}::test_a_program_is_compiled_once_whatever_the_umask_allows"),
    Mutant("gru at once: gate r closes", "gru_at_once.py",
           "columns[1:, schedule", "columns[:2, schedule", GRU_HOLDING),
    Mutant("gru at once: gate z opens", "gru_at_once.py",
           "schedule.slices[i], column] = SATURATED", "schedule.slices[i], column] = -SATURATED", ANY_GRU_ON_CUDNN),
    Mutant("gru at once: large inputs open gate z", "gru_at_once.py",
           "holding[..., : len(held)] = SATURATED", "holding[..., : len(held)] = 1", ANY_GRU_ON_CUDNN),
    Mutant("gru at once: states drift while they are held", "gru_at_once.py",
           "columns[1:, schedule", "columns[1:2, schedule",
           f"{GRU_ON_CUDNN}::test_long_sequences_are_as_exact_as_the_specification_in_half_precision"),
    Mutant("gru at once phase: modules tick one step late", "gru_at_once.py",
           "holding[-first % period // step ::", "holding[-first % period // step + 1 ::", ANY_GRU_ON_CUDNN),
    Mutant("gru at once phase: the first step has clock 0", "gru_at_once.py",
           "holding[-first % period // step ::", "holding[0 ::", ANY_GRU_ON_CUDNN),
    Mutant("gru at once: the layer runs at the steps of the fastest module", "gru_at_once.py",
           "return math.gcd(*schedule.periods)", "return schedule.periods[0]", ANY_GRU_ON_CUDNN),
    Mutant("gru at once: forbidden weights are read", "gru_at_once.py",
           "torch.cat(filled, dim=1)", "torch.cat(rows, dim=1)",
           f"{GRU_AT_ONCE}::test_forbidden_weights_are_not_read"),
    Mutant("gru at once: the input has any width", "gru_at_once.py",
           "width = -(-(I + len(held)) // 8) * 8 - I", "width = len(held)", GRU_HOLDING),
    Mutant("gru at once: a module that ticks at every step has an input", "gru_at_once.py",
           "if schedule.periods[i] != step]", "]",
           f"{GRU_AT_ONCE}::test_a_module_that_ticks_at_every_step_needs_no_input"),
    Mutant("gru at once phase: states are picked from the first step on", "held.py",
           "own[(start + period - first) // step ::", "own[0 ::", ANY_GRU_ON_CUDNN),
    Mutant("gru at once: states are those of the layer, which rounds", "cudnn.py",
           "return SignalPass(t0, input.shape[0], lengths, states_of(layer.output, h0, schedule, t0, period))",
           "return CudnnPass(t0, input.shape[0], lengths, (layer,))",
           f"{GRU_ON_CUDNN}::test_modules_that_do_not_tick_hold_their_state_bit_for_bit"),
    Mutant("gru at once: messages are free", "gru_at_once.py",
           "(tick + messages) / period", "tick / period",
           f"{GRU_AT_ONCE}::test_the_estimate_chooses_as_the_measured_times_do"),
    Mutant("gru at once: a layer of any size takes the least time", "gru_at_once.py",
           "return max(self.least, weights", "return max(self.least, 0 * weights",
           f"{GRU_AT_ONCE}::test_the_estimate_prefers_ticks_where_a_layer_would_mostly_multiply_for_nothing"),
    Mutant("gru at once: the estimate forgets that the layer skips steps", "gru_at_once.py",
           "in_layer) / find_period(schedule) < by_ticks", "in_layer) < by_ticks",
           f"{GRU_AT_ONCE}::test_the_estimate_prefers_ticks_where_a_layer_would_mostly_multiply_for_nothing"),
    Mutant("gru at once: the estimate takes tf32 for granted", "gru_at_once.py",
           "dtype == torch.float32 and allows_tf32(operator)", "dtype == torch.float32",
           f"{GRU_AT_ONCE}::test_the_estimate_asks_where_tf32_is_allowed"),
    Mutant("cudnn: without a tick there is no gradient", "cudnn.py",
           "or not any(schedule.ticks(t0, input.shape[0]))", "",
           f"{GRU_ON_CUDNN}::test_without_a_tick_there_are_gradients_of_zero"),
    Mutant("gru at once: it is never chosen", "cudnn.py",
           "schedule.modules > 1 and is_layer_faster(B, input.dtype, schedule)", "False",
           f"{GRU_AT_ONCE}::test_all_modules_are_one_call_that_is_as_wide_as_cudnn_likes"),
    Mutant("compile: a backend without an operator records that of a kernel", "backends.py",
           "if backend.has_operator else None", "if backend.run_plain is not None else None",
           f"{CUDNN}::test_a_compiled_layer_records_no_operator_of_a_kernel"),
    Mutant("step-gpu: the phase of a module is off by one", "kernels/gpu/cuda/step.cu",
           "call.clock) % period == 0", "call.clock) % period == 1 % period", GPU_STEPS),
    Mutant("step-gpu: sequences have the clock of the first", "kernels/gpu/cuda/step.cu",
           "call.clocks[b] :", "call.clocks[0] :", GPU_CLOCKS),
    Mutant("step-gpu delay: a module reads what is written at its own tick", "kernels/gpu/cuda/step.cu",
           "call.h + first_sequence * PARTS * N,", "call.next + first_sequence * PARTS * N,", GPU_STEPS),
    Mutant("step-gpu: a GRU's input is inside the reset product", "kernels/gpu/cuda/step.cu",
           "!is_split || of_input", "!is_split", f"{GPU_STEPS}[gru]"),
    Mutant("step-gpu: the peephole of gate o reads the c before the tick", "kernels/gpu/cuda/step.cu",
           "add_peephole(call, a[3], peepholes[2], c_now)", "add_peephole(call, a[3], peepholes[2], c)",
           f"{GPU_STEPS}[peepholes]"),
    Mutant("step-gpu: columns before a multiple of 16 bytes are not multiplied one by one", "kernels/gpu/cuda/step.cu",
           "(WIDE - first % WIDE) % WIDE", "(int64)0", GPU_TILES),
    Mutant("step-gpu: weights that were transposed in place are read as before", "kernels/gpu/stepping.py",
           "weight.dtype, weight.is_contiguous())", "weight.dtype, True)", GPU_STREAM),
    Mutant("small gated: a GRU's reset gate leaves out its second bias", "kernels/gpu/cuda/small_gated_forward.cu",
           "const float begin = LSTM ? own : is_reset ? inner_bias : own;",
           "const float begin = LSTM ? own : is_reset ? 0 : own;", f"{SMALL_EQUALS}[gru]"),
    Mutant("small gated: the peephole of o reads the c before the tick", "kernels/gpu/cuda/small_gated_forward.cu",
           "last + peephole_o * c_new", "last + peephole_o * c", f"{SMALL_EQUALS}[lstm]"),
    Mutant("small gated: c is not rounded at a tick", "kernels/gpu/cuda/small_gated_forward.cu",
           "c_new = round_to_element(f * c + i * g);", "c_new = f * c + i * g;",
           f"{SMALL}::test_a_split_sequence_has_the_same_bits"),
    Mutant("small gated: the gradient of c passes a closed forget gate", "kernels/gpu/cuda/small_gated_backward.cu",
           "d.c = g_c * f;", "d.c = g_c;", f"{SMALL_EQUALS}[lstm]"),
    Mutant("small gated: a gradient passes a GRU's closed gate z", "kernels/gpu/cuda/small_gated_backward.cu",
           "d.h = g * z;", "d.h = g;", f"{SMALL_EQUALS}[gru]"),
    Mutant("small gated: the peephole of o has the gradient of another c", "kernels/gpu/cuda/small_gated_backward.cu",
           "own * (gate == 3 ? c : tick.second)", "own * tick.second", f"{SMALL_EQUALS}[lstm]"),
    Mutant("small gated: a GRU's input is inside the reset product backward", "kernels/gpu/cuda/small_gradients.cu",
           "GATES == 3 && row >= 2 * N ? row + N : row", "row", f"{SMALL_EQUALS}[gru]"),
    Mutant("small gated: a chunk's drive is loaded over that of the chunk before",
           "kernels/gpu/cuda/small_gated_forward.cu",
           "memory.drive[first / CHUNK % 2][k][row]", "memory.drive[0][k][row]",
           f"{SMALL}::test_gated_cells_with_weights_in_shared_memory_equal_the_specification"),
    Mutant("small gated: the drive that is computed before has the biases of the first gate",
           "kernels/gpu/cuda/small_drive.cu",
           "call.bias[s * call.bias_s + gate * N + unit]", "call.bias[s * call.bias_s + unit]",
           f"{SMALL}::test_gated_cells_with_weights_in_shared_memory_equal_the_specification"),
    Mutant("small gated: without helpers, a tick's gradient reads the state after it",
           "kernels/gpu/cuda/small_gated_backward.cu",
           "const int64 before = ticked ? at - row_size : at;", "const int64 before = at;",
           f"{SMALL}::test_gated_cells_with_weights_in_shared_memory_equal_the_specification"),
    Mutant("small gated: a product leaves out the last columns of a GRU's due units",
           "kernels/gpu/cuda/small_gated_backward.cu", "(GATES * groups + 3) / 4)", "GATES * groups / 4)",
           f"{SMALL}::test_many_units_of_gated_cells_equal_the_specification[gru]"),
    Mutant("small gated: units of a later group of 16 have no gradient", "kernels/gpu/cuda/small_gated_backward.cu",
           "reach |= (memory.group_due[16 * i] >> helper & 1) << i;", "reach |= memory.group_due[0] >> helper & 1;",
           f"{SMALL}::test_many_units_of_gated_cells_equal_the_specification"),
    Mutant("small gated: peepholes are left out", "kernels/gpu/small.py",
           'constants["PEEPHOLES"] = peepholes', 'constants["PEEPHOLES"] = False', f"{SMALL_EQUALS}[lstm]"),
    Mutant("small gated: a gate hears the infinite states of faster modules", "kernels/gpu/cuda/small_gated_forward.cu",
           "is_due && gate < GATES && sum != sum", "false", f"{SMALL_BROKEN}[gru]"),
    Mutant("small gated: what a tick keeps is stored in the row before", "kernels/gpu/cuda/small_gated_forward.cu",
           "            kept += 4 * row_size;", "            if (t > 1) kept += 4 * row_size;",
           f"{SMALL_EQUALS}[lstm]"),
    Mutant("small gated: the final state is that after the batch's last step",
           "kernels/gpu/cuda/small_gated_forward.cu", "if (counts) end_h = h, end_c = c;", "end_h = h, end_c = c;",
           f"{SMALL}::test_ticks_equal_those_of_the_cascade[gru]"),
    Mutant("memory: a block is lent twice", "kernels/cpu/blocks.c",
           "return best == NULL ? NULL : take_out(best);", "return best == NULL ? NULL : *best;", KEPT),
    Mutant("memory: a block that is too small is lent",
           "kernels/cpu/blocks.c", "has >= bytes && has", "has", KEPT_SIZES),
    Mutant("memory: more is kept than was ever lent", "kernels/cpu/blocks.c",
           "int64_t room = pool.most_bytes - pool.lent_bytes;", "int64_t room = INT64_MAX;", KEPT_MOST),
    Mutant("kernel: mapped gradients are read as memory", "kernels/autograd.py",
           "return batched or has_tangents()", "return has_tangents()", BATCHED_GRADIENTS),
    Mutant("readout: the kernel's gradient of a part that is wanted is left out", "kernels/readout_products.py",
           "torch.mm(g, column, out=to)", "to.zero_()",
           f"{READOUT}::test_readout_of_ticks_equals_linear_of_the_output"),
    Mutant("memory: old blocks are timed by the wall clock", "kernels/cpu/blocks.c",
           "clock_gettime(CLOCK_MONOTONIC, &time);\n#endif", "clock_gettime(CLOCK_REALTIME, &time);\n#endif",
           KEPT_CLOCK),
    Mutant("memory: the condition of old blocks has the wall clock", "kernels/cpu/blocks.c",
           "    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);\n", "", KEPT_CLOCK),
    Mutant("memory: a size beyond 64 bits wraps around", "kernels/cpu/memory.h",
           "return __builtin_mul_overflow(a, b, &size) ? LARGEST_SIZE : smaller(size, LARGEST_SIZE);",
           "return __builtin_mul_overflow(a, b, &size) ? size : smaller(size, LARGEST_SIZE);", LSTM_SIZES),
    Mutant("lstm: the output gate reads the cell of the step before", "kernels/cpu/lstm.c",
           "logistic(z[3] + load(peephole + 2 * N * LANES + at) * c)",
           "logistic(z[3] + load(peephole + 2 * N * LANES + at) * before)", LSTM),
    Mutant("lstm: sequences go on beyond their end", "kernels/cpu/lstm.c",
           "if (call->lengths != NULL) c = while_reading(&block, t, c);", "", LSTM),
    Mutant("lstm: gradients beyond the end are read", "kernels/cpu/lstm.c",
           "for (int64_t n = 0; call->lengths != NULL && n < N; n++)", "for (int64_t n = N; n < N; n++)", LSTM_END),
    Mutant("lstm: the weights' gradient, one step late", "kernels/cpu/lstm.c",
           "kept + plan->h + from * N * LANES, end - from, N, N)",
           "kept + plan->h + (from + 1) * N * LANES, end - from, N, N)", LSTM),
    Mutant("lstm: peepholes return no gradient to the cell", "kernels/cpu/lstm.c",
           "dc * f + dz_i * load(peephole + at) + dz_f * load(peephole + N * LANES + at));", "dc * f);", LSTM),
    Mutant("lstm: closed gates lose digits", "kernels/cpu/vectors.h",
           "return choose(x < 0, (vec)((mask)spread(1) & ~far), e + 1) / (e + 2);",
           "return choose(x < 0, 1 - (e + 1) / (e + 2), (e + 1) / (e + 2));", LSTM_GATES),
    Mutant("gated kernel: a gate never closes completely", "kernels/cpu/vectors.h",
           "(vec)((mask)spread(1) & ~far)", "spread(1)", KERNEL_INFINITE),
    Mutant("gated kernel: the gradient of a closed output gate is NaN", "kernels/cpu/cells.h",
           "choose(o == 0, spread(1), o)", "o", KERNEL_INFINITE),
    Mutant("gated kernel: the peephole of o reads the c before the tick", "kernels/cpu/cells.h",
           "a[3] + peephole[2] * u.c", "a[3] + peephole[2] * c", KERNEL),
    Mutant("gated kernel: the gradient of c passes a closed forget gate", "kernels/cpu/cells.h",
           "    d *= f;\n", "", KERNEL),
    Mutant("gated kernel: messages are outside the GRU's reset product", "kernels/cpu/forward.h",
           "a[sum_of(cell, k)] += load(heard", "a[k] += load(heard", KERNEL),
    Mutant("gated kernel: modules that share a vector do not hold c", "kernels/cpu/forward.h",
           "    if (cell == LSTM) now.c = choose(due, now.c, load(row->c + v));\n", "", KERNEL),
    Mutant("gated kernel: the gradient of the forget gate reads the new c", "kernels/cpu/backward.h",
           "kept_place(plan, m, r->chunk, number - 1, row) + CELL * K",
           "kept_place(plan, m, r->chunk, number, row) + CELL * K", KERNEL),
    Mutant("gated kernel: a GRU leaves no gradient to the state before", "kernels/cpu/backward.h",
           "dues > 0 && c->cell != GRU ?", "dues > 0 ?", KERNEL),
    Mutant("gated kernel: the sum of the GRU's inner bias is not cleared", "kernels/cpu/backward.h",
           "        if (plan->call->cell == GRU) clear(sums + m->g_inner, m->kp);\n", "", KERNEL),
    Mutant("gated kernel: a step forgets the c of modules that are not due", "kernels/cpu/step.h",
           "parts == 2 && b < c->B; b++) copy(", "parts == 3 && b < c->B; b++) copy(", KERNEL_STEPS),
    Mutant("gated kernel: a step adds messages outside the GRU's reset product", "kernels/cpu/step.h",
           "if (gru) add(a + 3 * K, message", "if (gru) add(a + 2 * K, message", KERNEL_STEPS),
    Mutant("readout: every second output of the kernel lacks its bias", "kernels/cpu/readout.c",
           "*output++ = bias[o] + sum_of_lanes(sum);",
           "*output++ = (o % 2 ? 0 : bias[o]) + sum_of_lanes(sum);", READOUTS),
    Mutant("training: momentum that does not look ahead", "experiments/networks/descent.py",
           "gradient.add_(velocity * momentum)", "gradient.copy_(velocity)", UPDATES),
    Mutant("training: replicas share the first one's target", "experiments/generation/training.py",
           "errors = outputs.detach() - self.targets", "errors = outputs.detach() - self.targets[:1]", OWN),
    Mutant("training: a run that diverged leaves its last weights", "experiments/generation/training.py",
           "values = self.best_values[row] if diverged", "values = self.replicas.values[row] if diverged", DIVERGED),
    Mutant("store: a flipped bit of a record is not noticed", "experiments/sweep/damage.py",
           "stored is not None and stored != _digest_stored(connection, key)", "False",
           "tests/experiments/sweep/test_damage.py::test_a_flipped_bit_of_an_array_is_noticed"),
    Mutant("store: a damaged record is not replaced", "experiments/sweep/store.py",
           "if record.key in self._damaged and damage.is_damaged(connection, record.key):", "if False:",
           "tests/experiments/sweep/test_damage.py::test_a_damaged_run_is_trained_again_on_resume"),
    Mutant("figures: a text of a user is a formula", "experiments/report/drawing.py",
           r'escaped = text.replace("$", r"\$")', "escaped = text",
           "tests/experiments/report/test_any_records.py::test_a_text_of_a_user_is_drawn_as_it_is"),
    Mutant("limits: a count has no upper bound", "experiments/limits.py", "if number > most:", "if False:",
           "tests/experiments/test_reproduction.py::test_a_count_has_an_upper_bound_and_is_an_integer"),
    Mutant("store: a record and its arrays are two transactions", "experiments/sweep/store.py",
           "if added.rowcount == 1:",
           "connection.executescript('COMMIT; BEGIN')\n                if added.rowcount == 1:", FAULTS),
    Mutant("store: a batch is added record by record", "experiments/sweep/store.py",
           "for record in records:\n                connection.execute(",
           "for record in records:\n                connection.executescript('COMMIT; BEGIN')\n"
           "                connection.execute(", f"{STORE}::test_a_stored_record_is_read_back_unchanged"),
    Mutant("store: a later record takes the place of an earlier one", "experiments/sweep/store.py",
           "DELETE FROM runs WHERE key = ? AND status = ?", "DELETE FROM runs WHERE key = ? AND ? != ''",
           f"{STORE}::test_a_second_record_of_a_run_is_ignored"),
    Mutant("store: another version's file is taken", "experiments/sweep/store_file.py",
           "if _read_number(header, 60) != VERSION:", "if False:",
           f"{STORE}::test_a_file_that_is_no_store_is_refused_and_left_alone"),
    Mutant("store: a broken file is taken", "experiments/sweep/store_file.py",
           'if answer != "ok":', "if False:", f"{STORE}::test_a_file_that_is_no_store_is_refused_and_left_alone"),
    Mutant("store: views and triggers of somebody else are used", "experiments/sweep/store_file.py",
           'if statement is not None and " ".join(statement.split()) not in known:', "if False:",
           f"{STORE}::test_definitions_of_somebody_else_are_refused_before_they_are_used"),
    Mutant("engine: one bad run takes its batch with it", "experiments/sweep/batches.py",
           "if len(batch.runs) == 1:\n            return (record_failure(first,",
           "if True:\n            return len(batch.runs) * (record_failure(first,", ENGINE),
    Mutant("engine: stored runs are trained again", "experiments/sweep/driver.py",
           "if run.key not in keys]\n            if len(places)", "if run.key]\n            if len(places)", AGAIN),
    Mutant("engine: the estimate does not follow the measured times", "experiments/sweep/progress.py",
           "return taken / planned\n", "return 1.0\n", LEFT),
    Mutant("methods: an LSTM has two peepholes per cell", "experiments/networks/build.py",
           "layer += 3 * N", "layer += 2 * N", f"{BUILD}::test_peepholes_are_three_per_cell"),
    Mutant("methods: the LSTMs of earlier stores are lost", "experiments/networks/build.py",
           "parameters[name] = value.flatten() if", "parameters[name] = 0 * value.flatten() if",
           f"{BUILD}::test_weights_of_earlier_versions_are_loaded"),
    Mutant("search: the best rate has the lowest test error", "experiments/report/statistics.py",
           "find_task(record.run.task).choice_error(record) if", "record.error if",
           "tests/experiments/words/test_chapter.py::test_a_search_chooses_by_the_training_set"),
    Mutant("methods: the paper's claims are about all methods", "experiments/report/claims.py",
           "return [row for row in rows if row.method in paper.METHODS]", "return list(rows)", GATED_CLAIMS),
    Mutant("audio: one channel for all", "experiments/generation/music.py",
           "samples.mean(axis=1)", "samples[:, 0]",
           f"{AUDIO}::test_every_format_is_read_and_its_channels_are_averaged"),
    Mutant("audio: the offset is in samples", "experiments/generation/music.py",
           "np.rint(offset * sample_rate)", "np.rint(offset)", f"{AUDIO}::test_any_sample_rate_is_read"),
    Mutant("words: every network gets the same noise", "experiments/words/training.py",
           "np.random.default_rng([int(seed), 2])", "np.random.default_rng([0, 2])", WORDS),
    Mutant("words: a network reads a sequence that is not its own", "experiments/words/training.py",
           "self._lengths.cumsum(1) - self._lengths + total", "self._lengths.cumsum(1) + total", WORDS_EPOCH),
    Mutant("words: the test set is normalised by itself", "experiments/words/corpus.py",
           "((utterance.features - self.mean) / self.deviation)",
           "((utterance.features - utterance.features.mean(0)) / self.deviation)", WORDS_NORMAL),
    Mutant("series: no correction for the number of comparisons", "experiments/clocks/rank_test.py",
           "(len(order) - rank) * probabilities[place]", "probabilities[place]", SERIES),
    Mutant("evolution: the search depends on more than its seed", "experiments/clocks/search.py",
           "np.random.set_state(self._state)", "pass", SEED),
    Mutant("verdict: worse clocks are not called worse", "experiments/clocks/verdict.py",
           "return self.error > self.series_error", "return False",
           f"{VERDICT}::test_the_sentence_says_which_clocks_are_better"),
    Mutant("verdict: the printed command forgets the user's data", "experiments/clocks/verdict.py",
           'for argument in ("--data", text)]', 'for argument in ("--data", "bundle")]',
           f"{VERDICT}::test_the_command_repeats_the_users_sequences"),
    Mutant("saved: a changed bit goes unnoticed", "tensor_files.py",
           'if metadata.pop("sha256", None) != compute_digest(metadata, arrays):',
           'if metadata.pop("sha256", None) is None:', SAVED),
    Mutant("untrusted: a reader waits for a pipe", "untrusted.py",
           "if not stat.S_ISREG(status.st_mode):", "if status.st_size < 0:", ENDLESS),
    Mutant("untrusted: half of a surrogate pair is a text", "untrusted.py", "_check_text(item)", "pass", BAD_JSON),
    Mutant("untrusted: JSON may be nested to any depth", "untrusted.py",
           "    if level:\n", "    if False:\n", BAD_JSON),
    Mutant("saved: a shape beside a zero may be of any size", "tensor_files.py",
           "math.prod(max(size, 1) for size in shape)", "math.prod(shape)", BAD_HEADER),
    Mutant("writing: written in place", "writing.py", 'file = temporary.open("xb")', 'file = path.open("wb")', SAVING),
    Mutant("writing: what a killed process left stays", "writing.py", "os.unlink(folder / name)", "pass", ABANDONED),
    Mutant("writing: the file of a living process is removed", "writing.py",
           "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass", ABANDONED),
    Mutant("writing: the temporary name can be foreseen", "writing.py",
           "secrets.token_hex(8)", "path.name", FORESEEN),
    Mutant("writing: a device is replaced", "writing.py", "if not stat.S_ISREG(mode):", "if False:", DEVICE),
    Mutant("sounds: a sample may have any size", "experiments/words/sound_files.py",
           "if not samples.size or (samples.min()", "if np.isfinite(samples).all() or (samples.min()", LOUD),
    Mutant("sounds: a small file may fill the memory", "experiments/words/sound_files.py",
           "        if count > most:\n", "        if False:\n", BOMB),
    Mutant("features: a damaged cache is used", "experiments/words/feature_cache.py",
           "if arrays[\"digest\"].tobytes() != _digest(file, frames, lengths):", "if False:", DAMAGED_CACHE),
    Mutant("features: a cache may ask for any memory", "experiments/array_files.py",
           "if size > most or size != total - file.tell():", "if False:", DAMAGED_CACHE),
    Mutant("recogniser: a probability may be no number", "experiments/words/recogniser/model.py",
           "if not np.isfinite(probabilities).all():", "if False:", NOT_FINITE),
    Mutant("words: a terminal obeys the name of a file", "experiments/words/recogniser/recognition.py",
           'return f"{escape_controls(self.file)}: {text}"', 'return f"{self.file}: {text}"', TERMINAL),
    Mutant("recogniser: a stream is not normalised", "experiments/words/recogniser/model.py",
           "torch.from_numpy(self._recogniser.normalise(features))", "torch.from_numpy(features)", STREAM),
    Mutant("recogniser: every frame is the first", "experiments/words/recogniser/model.py",
           "layer.step(frame, self._state)", "layer.step(frame, None)", STREAM),
    Mutant("recogniser: the test chooses", "experiments/words/recogniser/training.py",
           "lowest_cross_entropy(result) if result.status", "result.error if result.status", CHOICE),
    Mutant("resampler: it begins anew with each part", "experiments/words/features.py",
           "self._kept = np.concatenate([self._kept, np.asarray(samples, dtype=np.float64)])",
           "self._kept = np.asarray(samples, dtype=np.float64)", STREAM),
    Mutant("soft clocks: ticks are counted from the start of the chunk", "soft_clocks.py",
           "torch.arange(t0, t0 + T,", "torch.arange(0, T,", LEARNED_PARTS),
    Mutant("soft clocks: slow modules read fast ones", "soft_clocks.py",
           "(weight_hh * connected).mT", "(weight_hh * (connected + 1) / 2).mT", LEARNED_MASK),
    Mutant("soft clocks: modules of equal period do not read each other", "soft_clocks.py",
           "(period[:, None] <= period)", "(period[:, None] < period)",
           f"{LEARNED}::test_clocks_are_drawn_in_training_only"),
    Mutant("soft clocks: a module may not read itself", "soft_clocks.py",
           "return connected.masked_fill(itself, 1.0)", "return connected",
           f"{LEARNED}::test_connections_follow_the_periods_while_they_cross"),
    Mutant("soft clocks: clocks get no gradient", "soft_clocks.py",
           "below = values - values.detach()", "below = values.detach() - values.detach()", LEARNED_GRADIENT),
    Mutant("soft clocks: infinite sharpness is not hard", "soft_clocks.py",
           "return torch.where(sharpness == math.inf, hard, soft)", "return (10 * below).softmax(-1)", LEARNED_SHARP),
    Mutant("learned: hardened units are not sorted", "learned.py",
           "units = torch.cat([blocks[i] for i in order])", "units = torch.cat(blocks)", LEARNED_HARD),
    Mutant("learned: hardened phases start at the wrong time", "learned.py",
           "return chosen, -start % every", "return chosen, start % every", LEARNED_PHASES),
    Mutant("learned: the difference of the outputs is not measured", "learned.py",
           "difference = after - before\n", "difference = before - before\n", LEARNED_MOVED),
    Mutant("estimators: the last weights stay, not the best", "estimators/training.py",
           "self.network.load_state_dict(best)", "pass",
           f"{TRAINING}::test_the_best_weights_are_kept_and_training_stops"),
    Mutant("estimators: a training seeds the global generators", "estimators/training.py",
           "fork_rng(devices=cuda)", "fork_rng(devices=cuda, enabled=False)",
           f"{TRAINING}::test_the_global_generators_stay_as_they_are"),
    Mutant("estimators: the gradient is not clipped", "estimators/training.py",
           "if settings.clip is not None:", "if False:", f"{TRAINING}::test_the_gradient_is_clipped"),
    Mutant("estimators: a small batch counts as much as a large one", "estimators/training.py",
           "total += count * loss.item()", "total += len(items) / len(losses) * loss.item()",
           f"{TRAINING}::test_the_loss_is_the_mean_over_items_not_batches"),
    Mutant("estimators: the patience has no end", "estimators/training.py",
           "epoch - best_epoch >= settings.patience", "epoch - best_epoch > settings.patience",
           f"{TRAINING}::test_the_best_weights_are_kept_and_training_stops"),
    Mutant("estimators: padding is read", "estimators/sequences.py",
           "return self.values[places], on_device", "return self.values[places], None", ALONE),
    Mutant("estimators: NaN within a sequence is taken for its end", "estimators/sequences.py",
           "inside = missing.any(axis=2) & ~is_padding", "inside = missing.any(axis=2) & False",
           f"{SEQUENCES}::test_other_input_is_refused"),
    Mutant("estimators: the weights of sequences do not count", "estimators/sequence_estimator.py",
           "(losses * shares[items]).mean()", "losses.mean()", WEIGHTS),
    Mutant("estimators: the readout reads the first layer", "estimators/sequence_network.py",
           "hidden[-self.layer.num_directions :]", "hidden[: self.layer.num_directions]", LAST_LAYER),
    Mutant("estimators: a file has weights that its schedule forbids", "estimators/saving.py",
           "if weights.reshape(gates, N, N)[:, ~schedule.mask()].any():", "if False:",
           f"{SEQUENCE_FILES}::test_a_file_that_makes_no_sense_is_refused"),
    Mutant("estimators: a file has tensors that nobody reads", "estimators/sequence_files.py",
           "    if unknown:\n", "    if False:\n", f"{SEQUENCE_FILES}::test_wrong_tensors_are_refused"),
    Mutant("estimators: clocks: a trend hides rhythms", "estimators/peaks.py",
           "- level - slope * times / T", "- level", f"{CLOCKS_FROM_DATA}::test_a_trend_hides_no_rhythm"),
    Mutant("estimators: clocks: leakage hides rhythms", "estimators/peaks.py",
           "channel * np.hanning(len(channel) + 2)[1:-1]", "channel",
           f"{CLOCKS_FROM_DATA}::test_leakage_of_a_strong_wave_hides_no_weak_one"),
    Mutant("estimators: clocks: overtones are rhythms", "estimators/peaks.py",
           "    return not below or power[k] < 0.5", "    return False and power[k] < 0.5",
           f"{CLOCKS_FROM_DATA}::test_overtones_are_not_rhythms"),
    Mutant("estimators: clocks: a random walk has rhythms", "estimators/peaks.py",
           "    for spectrum in (power, steepened):", "    for spectrum in (power,):",
           f"{CLOCKS_FROM_DATA}::test_noise_has_no_rhythm"),
    Mutant("estimators: clocks: cycles that do not fit are proposed", "estimators/clocks.py",
           "if period <= limit}", "}", f"{CLOCKS_FROM_DATA}::test_daily_and_weekly_rhythms_become_24_and_168"),
    Mutant("estimators: clocks: gaps between periods stay open", "estimators/clocks.py",
           "    for low, high in itertools.pairwise(sorted(periods)):", "    for low, high in []:",
           f"{CLOCKS_FROM_DATA}::test_gaps_between_periods_are_closed"),
    Mutant("estimators: series: times that occur twice pass", "estimators/time_axis.py",
           "    wrong = np.flatnonzero(np.diff(numbers) <= 0)",
           "    wrong = np.flatnonzero(np.diff(numbers) < 0)",
           f"{TIME_SERIES}::test_times_that_occur_twice_or_go_backwards_are_named"),
    Mutant("estimators: series: a day has 24 hours when clocks change", "estimators/time_axis.py",
           "return isinstance(offset, pd.offsets.Tick) and not isinstance(offset, pd.offsets.Day)",
           "return isinstance(offset, pd.offsets.Tick | pd.offsets.Day)",
           f"{TIME_SERIES}::test_time_zones_keep_their_hours_when_clocks_change"),
    Mutant("estimators: series: gaps pass", "estimators/series.py",
           "        _check_gaps(rows, axis, start, frame, argument)\n", "",
           f"{TIME_SERIES}::test_rows_that_are_missing_are_named_or_filled"),
    Mutant("estimators: series: infinity passes", "estimators/series.py",
           "np.flatnonzero(np.abs(values) > LARGEST)", "np.flatnonzero(values > np.inf)",
           f"{TIME_SERIES}::test_infinity_is_named"),
    Mutant("estimators: series: new observations may begin anywhere", "estimators/series.py",
           "    if found < expected or (found > expected and missing == \"error\"):", "    if False:",
           f"{TIME_SERIES}::test_series_are_continued_after_their_end"),
    Mutant("estimators: history: the tail is too short", "estimators/history.py",
           "(max(MEDIANS) + 1) * self.season - horizon", "2 * self.season",
           f"{FORECAST_FEATURES}::test_one_observation_at_a_time_gives_the_same_bits"),
    Mutant("estimators: history: profiles forget their first values", "estimators/history.py",
           "share = np.maximum(weights, 1 / (cycles[:, None, None] + 1))", "share = weights",
           f"{FORECAST_FEATURES}::test_profiles_are_means_and_medians_of_a_phase"),
    Mutant("estimators: features: candidates look ahead", "estimators/features.py",
           "return ahead + -(-ahead // season) * -season",
           "return ahead + (ahead // season) * -season",
           f"{FORECAST_FEATURES}::test_one_observation_at_a_time_gives_the_same_bits"),
    Mutant("estimators: features: scales do not follow phases", "estimators/features.py",
           "(totals + PRIOR * mean) / (counts + PRIOR)",
           "(totals.mean(0) + PRIOR * mean + 0 * totals) / (counts.mean() + PRIOR)",
           f"{FORECAST_FEATURES}::test_scales_follow_the_phases"),
    Mutant("estimators: intervals: factors do not follow", "estimators/intervals.py",
           "RATE * (missed - (1 - self.coverage))", "0 * (missed - (1 - self.coverage))",
           f"{INTERVALS}::test_factors_follow_observations"),
    Mutant("estimators: intervals: misses shrink them", "estimators/intervals.py",
           "RATE * (missed -", "-RATE * (missed -", f"{INTERVALS}::test_factors_follow_observations"),
    Mutant("estimators: intervals: all steps ahead share factors", "estimators/intervals.py",
           "elif fewest < FEWEST_PER_STEP:", "elif True:", f"{INTERVALS}::test_every_step_ahead_has_its_factor"),
    Mutant("estimators: intervals: coverage is measured on the calibration", "estimators/intervals.py",
           "calibration = calibrate(scores[:half], coverage)", "calibration = calibrate(scores, coverage)",
           f"{INTERVALS}::test_coverage_is_measured_on_other_values_than_those_of_the_calibration"),
    Mutant("estimators: stream: the state is not kept", "estimators/stream.py",
           "self.history, self.state = longer.tail(self.features.horizon), state",
           "self.history = longer.tail(self.features.horizon)", STREAM_STATE),
    Mutant("estimators: stream: the history grows", "estimators/stream.py",
           "longer.tail(self.features.horizon), state", "longer, state", UPDATE_COST),
    Mutant("estimators: stream: filled values move intervals", "estimators/stream.py",
           "np.where(seen, score(known, targets), np.nan)", "score(known, targets)", FILLED_INTERVALS),
    Mutant("estimators: stream: forecasts are scored in the wrong order", "estimators/stream.py",
           "self.outputs.flip(0)", "self.outputs", FOLLOWED),
    Mutant("estimators: windows: filled values teach", "estimators/windows.py",
           "np.isnan(targets) | ~(seen > 0)", "np.isnan(targets)", FILLED_TARGETS),
    Mutant("estimators: windows: the held-out end teaches", "estimators/windows.py",
           "last = train_end - H + 1\n", "last = T - H\n", HELD_OUT_END),
    Mutant("estimators: windows: the regression sees the held-out end", "estimators/windows.py",
           "last = self.train_end - self.horizon\n", "last = self.end - self.horizon - 1\n", HELD_OUT_END),
    Mutant("estimators: windows: phases of a batch differ", "estimators/windows.py",
           "starts = starts - (starts - phase) % self.season", "starts = starts + 0",
           f"{WINDOWS}::test_the_windows_of_a_batch_share_their_clock"),
    Mutant("estimators: windows: a batch has the clock 0", "estimators/windows.py",
           "self.candidates[chosen], phase, steps", "self.candidates[chosen], 0, steps",
           f"{WINDOWS}::test_the_windows_of_a_batch_share_their_clock"),
    Mutant("estimators: windows: the warm-up counts", "estimators/windows.py",
           "steps = self.warm_up + torch.randperm(self.length - self.warm_up)",
           "steps = torch.randperm(self.length - self.warm_up)",
           f"{WINDOWS}::test_the_windows_of_a_batch_share_their_clock"),
    Mutant("estimators: forecaster: features see the held-out end", "estimators/forecaster.py",
           "fit_features(table.values[:train_end], known[:train_end]",
           "fit_features(table.values, known", HELD_OUT_END),
    Mutant("estimators: forecaster: every fit has the same seed", "estimators/forecaster.py",
           "seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))",
           "seed = 0", FORECAST_SEED),
    Mutant("estimators: network: gates have no effect", "estimators/forecast_network.py",
           "(self.basis @ gates).unflatten(-1, (self.channels, self.candidates)) + self.combine_weights()",
           "self.combine_weights()", f"{WINDOWS}::test_the_output_equals_its_definition"),
    Mutant("estimators: network: weights learn at full rate", "estimators/forecast_network.py",
           "self.weights + WEIGHT_RATE * self.changes", "self.weights + self.changes",
           f"{WINDOWS}::test_the_output_equals_its_definition"),
    Mutant("estimators: network: slow modules learn at full rate", "estimators/forecast_network.py",
           "periods.rsqrt()", "torch.ones_like(periods)", WINDOWS),
    Mutant("estimators: shares of the learning rate have no effect", "estimators/training.py",
           "parameter.copy_(torch.lerp(old, parameter, share))", "pass", TRAINING),
    Mutant("estimators: files: a file may have any factors", "estimators/forecast_files.py",
           "    if (np.diff(factors, axis=0) < 0).any()",
           "    if False and (np.diff(factors, axis=0) < 0).any()",
           f"{FORECAST_FILES}::test_files_that_make_no_sense_are_refused"),
    Mutant("estimators: files: scales may be zero", "estimators/forecast_files.py",
           "if not ((array >= smallest) & (array <= LARGEST)).all():", "if False:",
           f"{FORECAST_FILES}::test_files_that_make_no_sense_are_refused"),
    Mutant("estimators: files: the last outputs are lost", "estimators/forecast_files.py",
           "np.ascontiguousarray(stream.outputs.numpy(), \"<f4\")",
           "np.ascontiguousarray(stream.outputs.numpy()[-1:], \"<f4\")",
           f"{FORECAST_FILES}::test_the_same_bits_come_back"),
    Mutant("estimators: files: the clock of the stream starts again", "estimators/forecast_files.py",
           "_restore_state(network, arrays, history.end)",
           "_restore_state(network, arrays, len(history.values))",
           f"{FORECAST_FILES}::test_the_clock_goes_on_after_a_history_that_was_cut"),
    Mutant("estimators: backtest: the naive forecast looks ahead", "estimators/competitors.py",
           "features.compute_base(history, origin - 1, 1) for origin in data.origins",
           "features.compute_base(history, origin, 1) for origin in data.origins", BACKTEST_SCORES),
    Mutant("estimators: backtest: models see the observation of an origin", "estimators/competitors.py",
           "new = slice(stream.steps, origin)", "new = slice(stream.steps, origin + 1)", BACKTEST_ORIGINS),
    Mutant("estimators: backtest: errors are not scaled", "estimators/backtest.py",
           "scaled = errors / self.unit", "scaled = errors", BACKTEST_SCORES),
    Mutant("estimators: backtest: rivals train for any time", "estimators/competitors.py",
           "max_seconds=max(forecaster.fit_seconds_, 1e-3) if is_timed else None",
           "max_seconds=None", BACKTEST_RIVALS),
    Mutant("estimators: backtest: rivals are of any size", "estimators/competitors.py",
           "abs(self._count_parameters(features, size) - self.parameters)", "abs(size - 40)", BACKTEST_RIVALS),
    Mutant("estimators: seasons: they need not divide each other", "estimators/seasons.py",
           "    multiple = shorter[-1] * round(period / shorter[-1])\n",
           "    return period\n    multiple = shorter[-1] * round(period / shorter[-1])\n",
           f"{SEASONS}::test_seasons_divide_each_other_and_fit"),
    Mutant("estimators: seasons: slow periods have as many units as fast ones", "estimators/seasons.py",
           "each = max(1, hidden_size // UNITS_PER_SLOW_UNIT)", "each = max(1, hidden_size // len(periods))", SEASONS),
    Mutant("imports: a saved network needs the experiments", "saved.py",
           "from .network import LAYERS, Network\n",
           "from .network import LAYERS, Network\nfrom .experiments.progress import Progress as Progress\n",
           f"{IMPORTS}::test_files_import_only_what_comes_before_them"),
    Mutant("imports: the layer calls a kernel", "layer.py",
           "from .schedule import Schedule\n",
           "from .schedule import Schedule\nfrom .kernels.cpu import loader as loader\n",
           f"{IMPORTS}::test_few_files_import_kernels"),
    Mutant("memory: an input at which no module ticks counts", "inspection/memory.py",
           "slowest = np.full(T, -1)", "slowest = np.full(T, 0)", FORGETTING),
    Mutant("memory: the slope is that of the step before", "inspection/memory.py",
           "(slope.message[t][:, rows, None] * messages)", "(slope.message[t - 1][:, rows, None] * messages)", MEMORY),
    Mutant("silence: only the readout reads the constant", "inspection/silence.py",
           "    if everywhere:", "    if not everywhere:", SILENCE),
    Mutant("spectrum: both signs are counted as one", "inspection/spectrum.py",
           "total[1 : (steps + 1) // 2] *= 2", "total[1 : (steps + 1) // 2] *= 1", SPECTRUM),
    Mutant("cost: a module sends messages to all modules", "inspection/cost.py",
           "[units.stop for units in schedule.slices]", "[N for units in schedule.slices]", COUNTED),
    Mutant("inspect: other words are normalised by themselves", "experiments/words/inspected.py",
           "mean, deviation = trained.mean, trained.deviation", "mean, deviation = 0.0, 1.0", INSPECTED),
    Mutant("tables: a number may be infinite", "experiments/tables.py",
           "            if abs(number) <= LARGEST_NUMBER:\n", "            if True:\n",
           f"{TABLES}::test_csv_that_is_no_table_of_numbers_is_refused_with_its_place"),
    Mutant("tables: rows may have any number of cells", "experiments/tables.py",
           "if len(cells) != len(self.columns):", "if False:",
           f"{TABLES}::test_csv_that_is_no_table_of_numbers_is_refused_with_its_place"),
    Mutant("tables: the names of the columns are data", "experiments/tables.py",
           "        if self._has_names:\n", "        if False:\n", f"{TABLES}::test_csv_is_read_as_it_is_written"),
    Mutant("tables: NaN passes for a number", "experiments/tables.py",
           "np.argwhere(~(np.abs(values) <= LARGEST_NUMBER))", "np.argwhere(np.abs(values) > LARGEST_NUMBER)",
           f"{TABLES}::test_npy_without_columns_of_numbers_is_refused"),
    Mutant("arrays: pickled objects are not named", "experiments/array_files.py",
           """if b"'descr': '|O'" in text:""", "if False:",
           f"{TABLES}::test_npy_without_columns_of_numbers_is_refused"),
    Mutant("generation: a column begins at the first row", "experiments/generation/music.py",
           "samples = values[start : start + wanted]", "samples = values[:wanted]",
           f"{COLUMNS}::test_column_is_cut_and_scaled"),
    Mutant("regression: all rows decide the scale", "experiments/regression/columns.py",
           "(self.inputs, self.target))[:rows]", "(self.inputs, self.target))",
           f"{REGRESSION}/test_columns.py::test_rows_are_cut_in_their_order"),
    Mutant("regression: the test part ends the training", "experiments/regression/training.py",
           "errors = np.array([nmse(output, self.validation.targets) for output in validation])",
           "errors = np.array([nmse(output, self.test.targets) for output in test])",
           f"{REGRESSION}/test_training.py::test_test_part_has_no_influence"),
    Mutant("regression: networks share a cut of the gradient", "experiments/regression/training.py",
           "(sum_of_squares(gradient).sqrt() / CUT).clamp(min=1.0)[:, None]",
           "(sum_of_squares(gradient).max().sqrt() / CUT).clamp(min=1.0)",
           f"{REGRESSION}/test_training.py::test_a_run_has_the_same_bits_alone_and_among_others"),
    Mutant("regression: the last error chooses clocks", "experiments/regression/task.py",
           "return float(record.curve[:, 1].min())", "return record.error", TABLE_CLOCKS),
    Mutant("model: a module speaks on behind the readout", "inspection/model.py",
           "if module == self._replaced", "if module == -1",
           f"{RECORDED}::test_a_silenced_module_is_a_constant_for_the_rest_of_the_model"),
    Mutant("model: other modules hear a silenced one", "inspection/model.py",
           "if replacement is not None and replacement.everywhere:", "if False:",
           f"{RECORDED}::test_a_silenced_module_is_a_constant_for_the_rest_of_the_model"),
    Mutant("model: a final state keeps the silenced module", "inspection/model.py",
           "            hidden = self._change_hidden(hidden)\n", "",
           f"{RECORDED}::test_every_way_to_read_a_layer_is_silenced"),
    Mutant("model: padding is a part of the sequence", "inspection/model.py",
           "layout.lengths.tolist()", "[len(x)] * x.shape[1]", f"{RECORDED}::test_sequences_of_any_form_are_kept"),
    Mutant("model: a stream may start anywhere", "inspection/model.py",
           "if bool(torch.as_tensor(t0).any()) or any(", "if False and any(",
           f"{RECORDED}::test_what_cannot_be_inspected_is_refused"),
    Mutant("model: dropout stays on", "inspection/feeding.py", "    model.eval()\n", "",
           f"{RECORDED}::test_every_way_to_read_a_layer_is_silenced"),
    Mutant("model: every run draws other numbers", "inspection/feeding.py",
           "            torch.manual_seed(0)\n", "",
           f"{RECORDED}::test_random_models_are_compared_on_the_same_random_numbers"),
    Mutant("ONNX: a module hears the message of its own tick", "export/onnx/clocks.py",
           "self._times(listener, -1, extra=0)", "self._times(listener, 0, extra=0)",
           f"{ONNX_SEQUENCES}::test_random_networks"),
    Mutant("ONNX: ticks are counted from the start of the chunk", "export/onnx/clocks.py",
           'self._before = graph.add("Neg", t0)', "self._before = graph.integer(0)",
           f"{ONNX_SEQUENCES}::test_chunks_of_a_stream_equal_the_whole"),
    Mutant("ONNX: a module holds its last value one step too long", "export/onnx/clocks.py",
           "self._times(1, 0, extra=0)", "self._times(1, -1, extra=0)", f"{ONNX_SEQUENCES}::test_random_networks"),
    Mutant("ONNX: a sum takes the messages of the next tick", "export/onnx/clocks.py",
           "self._times(faster, -faster, extra=1)", "self._times(faster, 0, extra=1)",
           f"{ONNX_SEQUENCES}::test_random_networks"),
    Mutant("ONNX: a module without ticks reads an empty sequence", "export/onnx/clocks.py",
           'self.graph.add("Min", self.first(period), last)', "self.first(period)",
           f"{ONNX_SEQUENCES}::test_all_lengths_batches_and_clocks"),
    Mutant("ONNX: a module without ticks loses the state c", "export/onnx/cascade.py",
           'after[1] if period == 1 else graph.add("Where", silent, before[1], after[1])', "after[1]",
           f"{ONNX_SEQUENCES}::test_modules_that_never_tick_keep_their_state_bit_for_bit"),
    Mutant("ONNX: the final state of a module without ticks is one that it never had", "export/onnx/cascade.py",
           'graph.add("Gather", values, ticks, axis=0)', 'graph.add("Gather", values, graph.integer(-1), axis=0)',
           f"{ONNX_SEQUENCES}::test_modules_that_never_tick_keep_their_state_bit_for_bit"),
    Mutant("ONNX: a module absorbs messages that change between its ticks", "export/onnx/cascade.py",
           "if other.period % signal.period == 0:", "if True:", f"{ONNX_SEQUENCES}::test_random_networks"),
    Mutant("ONNX: messages to gate n of a GRU stay outside of the reset product", "export/onnx/cascade.py",
           "n, graph.sum(to_n, inside)]",
           'graph.add("Add", n, to_n), graph.add("Sub", graph.sum(to_n, inside), to_n)]',
           f"{ONNX_SEQUENCES}::test_all_lengths_batches_and_clocks"),
    Mutant("ONNX: the gates f and o of the operator LSTM are exchanged", "export/onnx/weights.py",
           "(0, 3, 1, 2)", "(0, 1, 3, 2)", f"{ONNX_SEQUENCES}::test_all_lengths_batches_and_clocks"),
    Mutant("ONNX: the peepholes f and o of the operator LSTM are exchanged", "export/onnx/weights.py",
           "np.concatenate([i, o, f])", "np.concatenate([i, f, o])",
           f"{ONNX_SEQUENCES}::test_small_and_large_modules_of_an_lstm"),
    Mutant("ONNX: the operator GRU applies the reset gate before the product", "export/onnx/operators.py",
           '{"linear_before_reset": 1}', '{"linear_before_reset": 0}',
           f"{ONNX_SEQUENCES}::test_all_lengths_batches_and_clocks"),
    Mutant("ONNX: modules that are not due are computed", "export/onnx/step.py",
           'graph.add("Where", mask, new, part[0])', "new", f"{ONNX_FILES}::test_steps_equal_the_specification"),
    Mutant("ONNX: a step computes all modules", "export/onnx/step.py",
           "count = layer.schedule.slices[slowest].stop", "count = layer.units",
           f"{ONNX_FILES}::test_a_step_multiplies_no_weights_of_slower_modules"),
    Mutant("ONNX: the stepper takes the fastest module that is due", "export/onnx/stepper.py",
           "if self.t % period == 0:", "if self.t % period == 0 and slowest is None:",
           f"{ONNX_FILES}::test_steps_equal_the_specification"),
    Mutant("ONNX: the check accepts everything", "export/onnx/checking.py",
           "if not error <= TOLERANCE:", "if False:", f"{ONNX_FILES}::test_the_check_finds_a_wrong_weight"),
    Mutant("ONNX: the check runs after the files are written", "export/onnx/files.py",
           "    if check:\n",
           "    write_folder(folder, contents)\n    if check:\n",
           f"{ONNX_FILES}::test_nothing_is_written_if_the_check_fails"),
    Mutant("delay in C: a slow module ticks before the fast ones have heard it", "export/c/clock.c.j2",
           "    ROLLED for (i = 0; i < MODULES; i++) {\n        if (state->countdown[i] > 0) {",
           "    ROLLED for (i = MODULES; i-- > 0;) {\n        if (state->countdown[i] > 0) {",
           EXPORTED_OUTPUTS),
    Mutant("phase in C: no module ticks at the first step", "export/c/network.c.j2",
           "        state->countdown[i] = 0;", "        state->countdown[i] = (steps)(modules[i].period - 1);",
           EXPORTED_OUTPUTS),
    Mutant("countdown in C: a module waits one step too long", "export/c/clock.c.j2",
           "        state->countdown[i] = (steps)(modules[i].period - 1);",
           "        state->countdown[i] = modules[i].period;",
           EXPORTED_OUTPUTS),
    Mutant("messages in C: a running sum stays although its speaker has ticked", "export/c/network.c.j2",
           "if (speaker->period - state->countdown[j] <= listener->period)",
           "if (j == i || speaker->period - state->countdown[j] < listener->period)",
           EXPORTED_OUTPUTS),
    Mutant("messages in C: a message stays although its speaker has ticked", "export/c/network.c.j2",
           "if (speaker->period - state->countdown[speaker - modules] <= listener->period) {",
           "if (speaker->period - state->countdown[speaker - modules] < listener->period) {",
           EXPORTED_OUTPUTS),
    Mutant("messages in C: a listener multiplies again what it has heard before", "export/c/network.c.j2",
           "if (speaker->period - state->countdown[j] <= listener->period)",
           "if (state->countdown[j] < speaker->period)",
           "tests/export/test_c_reads.py::test_only_due_modules_are_read"),
    Mutant("messages in C: running sums start at zero and not at the biases", "export/c/network.c.j2",
           "            *sum++ = modules[i].weights[row++];", "            *sum++ = 0.0f * modules[i].weights[row++];",
           EXPORTED_OUTPUTS),
    Mutant("idle in C: a module that was prepared once is never prepared again", "export/c/clock.c.j2",
           "        state->ready[i] = 0;\n        state->countdown[i] = (steps)",
           "        state->countdown[i] = (steps)",
           EXPORTED_OUTPUTS),
    Mutant("idle in C: a module is prepared before its speakers have ticked for the last time", "export/c/clock.c.j2",
           "if (state->countdown[i] == 0 && !state->ready[i]) {", "if (!state->ready[i]) {",
           EXPORTED_OUTPUTS),
    Mutant("layers in C: the second layer reads itself", "export/c/plan.py",
           "        source = hidden\n        hidden += layer.units\n",
           "        hidden += layer.units\n        source = hidden\n",
           EXPORTED_OUTPUTS),
    Mutant("the GRU in C: messages to its gates in the wrong order", "export/c/plan.py",
           "(2, 0, 1) if is_gru", "(0, 1, 2) if is_gru",
           EXPORTED_OUTPUTS),
    Mutant("peepholes in C: gate o takes those of gate f", "export/c/network.c.j2",
           "peepholes[2 * units + u]", "peepholes[units + u]",
           EXPORTED_OUTPUTS),
    Mutant("labels in C: trigraphs are not escaped", "export/c/literals.py",
           "if character in '\"\\\\?':", "if character in '\"\\\\':",
           "tests/export/test_c.py::test_labels_survive"),
    Mutant("the count for C: a speaker that ticked with the listener is not heard", "export/c/plan.py",
           ">= t - listener.period", "> t - listener.period",
           "tests/export/test_c.py::test_two_files_are_written_and_described"),
    Mutant("the count for C: wide instructions count twice", "export/c/emulator.py",
           "place += 4 if code[place + 1] >> 3 in WIDE else 2", "place += 2",
           "tests/export/test_c_reads.py::test_instructions_are_counted_one_by_one"),
    Mutant("the folder of an export: files of the user are mixed up", "export/folder.py",
           "        if next(folder.iterdir(), None) is None:", "        if folder.is_dir():",
           "tests/export/test_c.py::test_only_a_new_folder_is_written"),
    Mutant("phases: all sequences have the clock of the first", "phases.py",
           "groups.setdefault(tuple(ticks), [])", "groups.setdefault((), [])", CLOCKS_OF_SEQUENCES),
    Mutant("phases: the sequences stay in the order of their groups", "phases.py",
           "torch.cat([phase.rows for phase in phases]).argsort()",
           "torch.cat([phase.rows for phase in phases]).sort().values", CLOCKS_OF_SEQUENCES),
    Mutant("phases: a group has the lengths of the first sequences", "phases.py",
           "lengths.index_select(0, rows)", "lengths[: len(rows)]", CLOCKS_OF_SEQUENCES),
    Mutant("phases: a step has one phase", "step.py",
           "group_by_phase(clocks, schedule.periods, 1, input.device)",
           "group_by_phase(clocks, schedule.periods, 0, input.device)", STEPS_OF_CLOCKS),
    Mutant("phases: a step in a graph computes every module", "step.py",
           "ticks = t.to(h.device) % schedule.periods[i] == 0", "ticks = t.to(h.device) >= 0",
           "tests/core/test_phases.py::test_a_graph_steps_every_clock"),
    Mutant("phases: clocks stay in the user's order inside a packed batch", "sequences.py",
           "return clocks.index_select(0, self.packed.sorted_indices.to(clocks.device))", "return clocks",
           LENGTHS_GO_ON),
    Mutant("phases: lengths stay in the order inside", "sequences.py",
           "lengths = lengths.index_select(0, self.packed.unsorted_indices)", "pass", LENGTHS_GO_ON),
    Mutant("phases: lengths are not added to the clocks", "sequences.py",
           "        if shortest == longest:\n", "        if True:\n", LENGTHS_GO_ON),
    Mutant("phases: negative clocks are taken", "checks.py",
           "if earliest < 0:", "if latest < 0:",
           "tests/core/test_phases.py::test_clocks_that_do_not_fit_are_refused"),
    Mutant("kernel: all rows have the clock of the first", "kernels/cpu/rows.h",
           "c->rows != NULL ? c->rows[b] : b] % periods[i]", "c->rows != NULL ? c->rows[0] : 0] % periods[i]",
           KERNEL_ROWS),
    Mutant("kernel: a module is due where the one before is", "kernels/cpu/rows.h",
           "i > 0 && periods[i] % periods[i - 1] == 0", "i > 0", KERNEL_ROWS),
    Mutant("kernel: a row that is not due sends another message", "kernels/cpu/rows.h",
           "copy(block->row[which[n]] + message,", "copy(block->row[n] + message,", KERNEL_ROWS),
    Mutant("kernel: a row reads the input of another", "kernels/cpu/rows.h",
           "input + which[n] * c->input_b", "input + n * c->input_b", KERNEL_ROWS),
    Mutant("kernel: a row trusts the state that it remembers", "kernels/cpu/rows.h",
           "memcmp(block->row[n], h, (size_t)N * sizeof(real)) == 0", "1",
           "tests/kernels/test_rows.py::test_the_state_of_one_sequence_changes"),
    Mutant("kernel: a row trusts the weights that it remembers", "kernels/cpu/rows.h",
           "if (!same_weights(plan)) {", "if (0) {", "tests/kernels/test_rows.py::test_changed_weights_are_noticed"),
    Mutant("kernel: a row forgets the c of modules that are not due", "kernels/cpu/rows.h",
           "if (lstm) copy(block->cells[n], h + N, N);", "if (lstm) clear(block->cells[n], N);", KERNEL_ROWS),
    Mutant("pool: the clock of another slot advances", "kernels/cpu/rows.h",
           "c->clocks[c->rows[b]] += c->advance;", "c->clocks[b] += c->advance;", POOL),
    Mutant("pool: the messages of a slot outlive its stream", "kernels/cpu/slots.py",
           "        self.made[slot] = 0\n", "", POOL),
    Mutant("pool: messages outlive the weights", "kernels/cpu/slots.py",
           "        self.made.zero_()\n", "", f"{POOL} tests/core/test_streams.py::test_changed_weights_are_noticed"),
    Mutant("pool: every layer advances the clocks", "kernels/cpu/slots.py",
           "fields[FIELD_ADVANCE] = int(advance)", "fields[FIELD_ADVANCE] = 1", POOL),
    Mutant("pool: the c of a stream stays in its slot", "kernels/cpu/slots.py",
           "        self.c[slot] = state[N:]\n", "", POOL),
    Mutant("pool: a step without a kernel does not advance the clocks", "streams.py",
           "clocks.index_copy_(0, slots, after.t)", "pass", POOL),
    Mutant("pool: a closed stream is found again", "streams.py",
           "self._free.append(self._slots.pop(key))\n            self._last = None",
           "self._free.append(self._slots.pop(key))",
           "tests/core/test_streams.py::test_a_closed_stream_makes_no_step"),
    Mutant("pool: a key occurs twice", "streams.py",
           "if len(set(slots)) < len(slots):", "if False:",
           "tests/core/test_streams.py::test_what_does_not_fit_is_refused_and_nothing_changes"),
    Mutant("state file: a wrong number of clocks", "saved_states.py",
           "if len(clocks) != batch:", "if False:",
           "tests/core/test_saved_states.py::test_a_file_that_makes_no_sense_is_refused"),
    Mutant("state file: numbers beyond the clock", "saved_states.py",
           "0 <= clock < CLOCKS", "0 <= clock",
           "tests/core/test_saved_states.py::test_a_file_that_makes_no_sense_is_refused"),
    Mutant("state file: half precision comes back as float32", "saved_states.py",
           ".to(FLOATS[dtype]) for name in names", " for name in names",
           "tests/core/test_saved_states.py::test_a_state_is_restored_exactly"),
    Mutant("draws: every draw is the first one", "experiments/words/clips.py",
           'seed = f"\\n{draw}" if draw else ""',
           'seed = ""',
           f"{DRAWS}::test_every_draw_has_seven_speakers_of_each_word_and_divides_them_anew"),
    Mutant("draws: six speakers train", "experiments/words/draws.py",
           "TRAIN if place < TRAINING else TEST",
           "TRAIN if place <= TRAINING else TEST",
           f"{DRAWS}::test_every_draw_has_seven_speakers_of_each_word_and_divides_them_anew"),
    Mutant("draws: two draws may be alike", "experiments/words/draws.py",
           "if same != draw:",
           "if False:",
           f"{DRAWS}::test_draws_that_would_be_alike_are_refused"),
    Mutant("draws: the store forgets the draw", "experiments/words/bundle.py",
           '{"draw": corpus.draw} if corpus.draw else {}',
           "{}",
           f"{DRAWS}::test_a_store_of_an_earlier_version_has_no_draw"),
    Mutant("draws: the page has each draw apart", "experiments/words/corpus.py",
           "self.name.removesuffix(name_draw(self.draw))",
           "self.name",
           f"{DRAWS}::test_the_page_tells_the_spread_over_draws_from_that_within"),
    Mutant("draws: TIMIT has seven speakers to draw from", "experiments/words/timit.py",
           "order if all_speakers else order[:speakers]",
           "order[:speakers]",
           f"{DRAWS}::test_draw_0_of_timit_is_the_corpus_without_draws"),
    Mutant("draws: a split of the source is overruled", "experiments/words/corpus.py",
           "if all_speakers and contents.has_split and not contents.problems:",
           "if False:",
           f"{DRAWS}::test_a_split_of_the_source_is_not_overruled"),
    Mutant("validation: the test set judges too", "experiments/words/draws.py",
           "in judges else TRAIN) for each in corpus.train",
           "in judges else each.split) for each in corpus.utterances",
           f"{CLOCK_CHOICE}::test_validation_holds_out_training_speakers_and_no_others"),
    Mutant("validation: the worst series is chosen", "experiments/clocks/choice.py",
           "min(rows, key=lambda row: row.means.get(corpus.draw, math.inf))",
           "max(rows, key=lambda row: row.means.get(corpus.draw, 0.0))",
           f"{CLOCK_CHOICE}::test_a_series_whose_runs_all_failed_is_not_chosen"),
    Mutant("validation: the first series is tested as the chosen one", "experiments/clocks/choice.py",
           "for run in plan_comparison(request, [corpus], [chosen[corpus.draw]])[chosen[corpus.draw]]",
           "for run in plan_comparison(request, [corpus], names[:1])[names[0]]",
           f"{CLOCK_CHOICE}::test_the_test_errors_are_those_of_networks_that_learned_all_training_speakers"),
    Mutant("draws: the spread within has too many degrees of freedom", "experiments/report/draws.py",
           "freedom = sum(len(group) - 1 for",
           "freedom = sum(len(group) for",
           f"{DRAW_STATISTICS}::test_a_row_tells_the_spread_between_draws_from_that_within"),
    Mutant("draws: the spread between has too many degrees of freedom", "experiments/report/draws.py",
           "np.std(list(means.values()), ddof=1)",
           "np.std(list(means.values()))",
           f"{DRAW_STATISTICS}::test_a_row_tells_the_spread_between_draws_from_that_within"),
    Mutant("draws: the test is not paired", "experiments/report/draws.py",
           'permutation_type="samples"',
           'permutation_type="independent"',
           f"{DRAW_STATISTICS}::test_the_p_value_is_the_share_of_all_permutations"),
    Mutant("draws: p values are not corrected", "experiments/report/draws.py",
           "corrected = correct_by_holm([test.p for test in tests])",
           "corrected = [test.p for test in tests]",
           f"{DRAWS}::test_the_page_tells_the_spread_over_draws_from_that_within"),
    Mutant("estimators: clocks: overtones of the calendar are rhythms", "estimators/peaks.py",
           "        return base > FEWEST_RESOLVED\n", "        return False\n",
           f"{CLOCKS_FROM_DATA}::test_overtones_of_the_calendar_are_no_clocks"),
    Mutant("estimators: clocks: all waves near the overtones of few weeks belong to them", "estimators/peaks.py",
           "        return base > FEWEST_RESOLVED\n", "        return True\n",
           f"{CLOCKS_FROM_DATA}::test_a_short_series_keeps_a_strong_rhythm_near_an_overtone"),
    Mutant("estimators: clocks: sidebands of the calendar are rhythms", "estimators/peaks.py",
           "    mirror = round(2 * carrier - k)\n", "    return False\n    mirror = round(2 * carrier - k)\n",
           f"{CLOCKS_FROM_DATA}::test_sidebands_of_the_calendar_are_no_clocks"),
    Mutant("estimators: clocks: a sideband needs no mirror image", "estimators/peaks.py",
           " and image >= SMALLEST_MIRROR * power[k])", ")",
           f"{CLOCKS_FROM_DATA}::test_rhythms_beside_the_calendar_have_clocks"),
    Mutant("estimators: a mean of weights forgets all but the last", "estimators/weight_mean.py",
           "2 / (self.updates + 1))", "1.0)", f"{TRAINING}::test_the_mean_of_the_weights_is_kept"),
    Mutant("estimators: a mean of weights stays after it was measured", "estimators/weight_mean.py",
           "            torch._foreach_copy_(self.parameters, before)\n", "            pass\n",
           f"{TRAINING}::test_the_mean_of_the_weights_is_kept"),
    Mutant("estimators: the held-out items measure the last weights", "estimators/training.py",
           "nullcontext() if self.mean is None else self.mean.applied()", "nullcontext()",
           f"{TRAINING}::test_the_held_out_items_measure_the_mean"),
    Mutant("estimators: without held-out items no mean is kept", "estimators/training.py",
           "                self.mean.apply()\n", "                pass\n",
           f"{TRAINING}::test_the_mean_of_the_weights_is_kept"),
    Mutant("estimators: forecaster: weights are not averaged", "estimators/forecaster.py",
           "            average=True,\n", "",
           "tests/estimators/test_backtest.py::test_torch_layers_train_by_the_same_rule"),
    Mutant("features in C: the first sample of a window has no predecessor", "export/c/features.c.j2",
           "    second = (float)samples[0] - mean;", "    second = 0.0f;",
           EXPORTED_FEATURES),
    Mutant("features in C: the energies of filters may be below 1", "export/c/features.c.j2",
           "logs[filter - 1] = energy > 1.0f ? feature_log(energy) : 0.0f", "logs[filter - 1] = feature_log(energy)",
           EXPORTED_FEATURES),
    Mutant("features in C: windows do not overlap", "export/c/features.c.j2",
           "features->count = {{ NAME }}_WINDOW - {{ NAME }}_WINDOW_STEP;", "features->count = 0;",
           EXPORTED_FEATURES),
    Mutant("features in C: the last sample of an odd window is left out", "export/c/features.c.j2",
           "    energy += first * first;\n{% endif %}", "{% endif %}",
           EXPORTED_FEATURES),
    Mutant("features in C: a filter rises as it falls", "export/c/features.c.j2",
           "energy += all - rising;", "energy += rising;",
           EXPORTED_FEATURES),
    Mutant("features in C: the transform turns the wrong way", "export/c/features.py",
           "turns.append(np.stack([np.cos(angles), -np.sin(angles)], axis=-1).ravel())",
           "turns.append(np.stack([np.cos(angles), np.sin(angles)], axis=-1).ravel())",
           EXPORTED_FEATURES),
    Mutant("features in C: the middle filter of an odd number counts twice", "export/c/features.py",
           "/= 2 if settings.filters % 2 else 1", "/= 1",
           EXPORTED_FEATURES),
    Mutant("features in C: a reset keeps samples of the sound before", "export/c/features.c.j2",
           "    features->count = 0;\n", "    (void)features;\n",
           "tests/export/test_c_features.py::test_a_reset_forgets_the_sound_before"),
    Mutant("int8: a message stays although its speaker has ticked", "export/c/network_int8.c.j2",
           "if (speaker->period - state->countdown[j] <= listener->period)",
           "if (j == i || speaker->period - state->countdown[j] < listener->period)",
           EXPORTED_INTEGERS),
    Mutant("int8: an output of 1 wraps around", "export/c/network_int8.c.j2",
           "return (int16_t)(value > 32767 ? 32767 : value < -32768 ? -32768 : value);", "return (int16_t)value;",
           "tests/export/test_c_int8.py::test_nothing_overflows"),
    Mutant("int8: the DSP instructions of a Cortex-M4 take the wrong weights", "export/c/network_int8.c.j2",
           "__ror((uint32_t)weights, 8)", "__ror((uint32_t)weights, 16)",
           "tests/export/test_c_int8.py::test_a_cortex_computes_the_same_bits"),
    Mutant("int8: the last column of an odd number is left out", "export/c/network_int8.c.j2",
           "        if (x != end) {", "        if (x > end) {",
           EXPORTED_INTEGERS),
    Mutant("int8: NaN is not caught", "export/c/network_int8.c.j2",
           "if (!(value > -32767.0f))", "if (value < -32767.0f)",
           "tests/export/test_c_int8.py::test_real_inputs_become_integers"),
    Mutant("int8: the biases of a GRU's two products are swapped", "export/c/quantisation.py",
           "drive_bias[2 * N :], message_bias[2 * N :] = bias[2 * N : 3 * N], bias[3 * N :]",
           "message_bias[2 * N :], drive_bias[2 * N :] = bias[2 * N : 3 * N], bias[3 * N :]",
           QUANTISED_OUTPUTS),
    Mutant("int8: divisions round down", "export/c/quantisation.py",
           "bias=rows.bias + (1 << shifts >> 1), ", "",
           "tests/export/test_c_int8.py::test_divisions_have_no_bias"),
    Mutant("int8: the drives of other cells than a GRU round down", "export/c/quantisation.py",
           "bias = message.bias + np.rint(np.minimum(halves, 2**LARGEST_SHIFT)).astype(np.int64)",
           "bias = message.bias + 0 * halves.astype(np.int64)",
           "tests/export/test_c_int8.py::test_divisions_have_no_bias"),
    Mutant("int8: wide rows may overflow", "export/c/quantisation.py",
           "(size.sum(axis=1) * LARGEST_STATE + abs(bias)) / room", "0 * bias / room",
           "tests/export/test_c_int8.py::test_wide_layers_have_smaller_weights"),
    Mutant("int8: a small ReLU network has the range of a large one", "export/c/quantisation.py",
           'least = 15 - hidden_bits if cell == "relu" else', 'least = 3 if cell == "relu" else',
           "tests/export/test_c_int8.py::test_nothing_overflows"),
    Mutant("int8: no room above the calibration", "export/c/quantisation.py",
           "HEADROOM = 2.0", "HEADROOM = 1.0",
           f"{CALIBRATED}::test_the_ranges_of_the_calibration_are_doubled"),
    Mutant("calibration: the padding after a sequence counts", "export/c/calibration.py",
           "signal.at(0, 1, len(batch))[inside]", "signal.at(0, 1, len(batch))",
           f"{CALIBRATED}::test_ranges_ignore_what_follows_the_end_of_a_sequence"),
    Mutant("calibration: sounds are not normalised", "export/c/calibration.py",
           "normalised: Array = ((frames - features.mean) / features.deviation)", "normalised: Array = (frames)",
           f"{CALIBRATED}::test_frames_are_normalised_as_in_training"),
    Mutant("calibration: all decisions count as equal", "export/c/calibration.py",
           "equal = len(decided), int((decided == expected).sum())", "equal = len(decided), len(decided)",
           f"{CALIBRATED}::test_decisions_are_counted"),
    Mutant("wasm: all streams have the same memory", "export/wasm/exports.c.j2",
           "        end += size;\n", "",
           f"{WASM}::test_streams_do_not_disturb_each_other_and_their_memory_is_used_again"),
    Mutant("wasm: the next stream overlaps the state of the last one", "export/wasm/exports.c.j2",
           "(uint32_t)sizeof(stream) + 15u", "(uint32_t)sizeof(stream) / 2u + 15u",
           f"{WASM}::test_streams_do_not_disturb_each_other_and_their_memory_is_used_again"),
    Mutant("wasm: a stream begins with the state of a closed one", "export/wasm/exports.c.j2",
           "    reset(s);\n    return s;", "    return s;",
           f"{WASM}::test_streams_do_not_disturb_each_other_and_their_memory_is_used_again"),
    Mutant("wasm: frames do not reach the network", "export/wasm/exports.c.j2",
           "    step(s);\n    return 1;", "    return 1;",
           f"{WASM}::test_a_recogniser_hears_what_python_hears"),
    Mutant("wasm: a label ends the script of the page", "export/wasm/page.html.j2",
           "{{ data | tojson }}", "{{ data | tojson | replace('\\\\u003c', '<') | safe }}",
           f"{WASM_PAGE}::test_labels_end_no_script"),
    Mutant("wasm: a label ends the script of the wrapper", "export/wasm/wrapper.js.j2",
           "{{ labels | tojson }}", "{{ labels | tojson | replace('\\\\u003c', '<') }}",
           f"{WASM_PAGE}::test_labels_end_no_script"),
    Mutant("pool: the address of the packed weights outlives a call", "kernels/cpu/slots.py",
           "        fields[FIELD_PACKED] = self.packed.values.data_ptr()\n", "",
           "tests/core/test_streams.py::test_no_address_of_the_packed_weights_outlives_a_call"),
    Mutant("step: packed weights are compared as numbers", "kernels/cpu/stepping.py",
           "torch.equal(old.values.view(torch.uint8), new.values.view(torch.uint8))",
           "torch.equal(old.values, new.values)",
           "tests/kernels/test_stepping.py::test_zeros_of_another_sign_are_other_weights"),
    Mutant("pool: steps of two threads overlap", "streams.py",
           "        with self._lock:\n            slots = self._find_slots(list(keys))",
           "        if True:\n            slots = self._find_slots(list(keys))",
           "tests/core/test_streams.py::test_calls_wait_for_each_other"),
    Mutant("pool: another schedule of the layer is not noticed", "streams.py",
           "if other or layer.backend", "if layer.backend",
           "tests/core/test_streams.py::test_a_layer_that_is_another_one_is_refused"),
    Mutant("clocks: a tensor of clocks overflows", "checks.py",
           "if latest > LATEST:", "if False:", "tests/core/test_phases.py::test_clocks_that_do_not_fit_are_refused"),
    Mutant("state file: a header that is too long is written", "tensor_files.py",
           "        if size > most:\n", "        if False:\n",
           "tests/core/test_saved_states.py::test_what_could_not_be_loaded_replaces_no_file"),
    Mutant("state file: a clock that is too large is written", "saved_states.py",
           "elif clock >= CLOCKS:", "elif False:",
           "tests/core/test_saved_states.py::test_what_could_not_be_loaded_replaces_no_file"),
    Mutant("clocks: torch.func hides the numbers of clocks", "checks.py",
           "return t if t.dtype is torch.int64 else t.to(torch.int64)", "return t.to(torch.int64)",
           "tests/core/test_phases.py::test_derivatives_of_torch_func_take_clocks"),
    Mutant("calibration: states that are not finite pass", "export/c/calibration.py",
           "    if not np.isfinite(sizes).all():", "    if False:",
           "tests/export/test_c_calibration.py::test_exploding_networks_are_refused"),
    Mutant("calibration: the last bad number is named, and not the first", "export/c/calibration.py",
           "np.unravel_index(is_finite.argmin(), values.shape)",
           "np.unravel_index(is_finite.size - 1 - is_finite.ravel()[::-1].argmin(), values.shape)",
           "tests/export/test_c_calibration.py::test_calibrations_that_do_not_fit_are_refused"),
    Mutant("the check of int8: rivals have the ranges of the network", "export/c/check.py",
           "(1 / max(inputs, 1),) * inputs", "tuple((plan.quantised.input_units * 2**14).tolist())",
           "tests/export/test_c_calibration.py::test_rivals_fit_int8_whatever_the_inputs_of_the_network"),
    Mutant("int8: a product overflows where int has 16 bits", "export/c/network_int8.c.j2",
           "s += (int32_t)*matrix++ * *x;", "s += *matrix++ * *x;",
           "tests/export/test_c_int8.py::test_products_fit_where_int_has_16_bits"),
    Mutant("the count for C: the worst step of a long cycle is not emulated", "export/c/cost.py",
           "max(*counts, *count_worst_steps(emulator, program))", "max(counts)",
           "tests/export/test_c_reads.py::test_the_worst_step_of_a_long_cycle_is_emulated"),
    Mutant("the count for C: clocks are set to the steps since a tick", "export/c/cost.py",
           "-t % module.period", "(t + 1) % module.period",
           "tests/export/test_c_reads.py::test_the_worst_step_of_a_long_cycle_is_emulated"),
    Mutant("ONNX: the check accepts outputs that are not numbers", "export/onnx/checking.py",
           "if not error <= TOLERANCE:", "if error > TOLERANCE:", f"{ONNX_FILES}::test_the_check_finds_a_wrong_weight"),
    Mutant("export: the extra tensors of a saved network are dropped", "export/model.py",
           "if source.tensors:", "if False:", "tests/export/test_model.py::test_extra_tensors_are_not_dropped"),
    Mutant("export: numbers too large for float32 become infinite", "export/model.py",
           "if not np.isfinite(array).all():", "if not tensor.isfinite().all():",
           "tests/export/test_model.py::test_numbers_that_are_not_finite_in_float32_are_refused"),
    Mutant("the folder of an export: another file than the one on the way is named", "export/folder.py",
           "(folder, *folder.parents) if path.exists()", "(folder, *folder.parents)",
           "tests/export/test_folder.py::test_a_file_on_the_way_is_named"),
    Mutant("ONNX: the stepper believes a description of another network", "export/onnx/stepper.py",
           "if {value.name: value.shape for value in values} != _list_shapes(description, slowest):", "if False:",
           f"{ONNX_FILES}::test_the_stepper_refuses_a_description_of_another_network"),
    Mutant("evaluation: the first step is answered in place of the last", "experiments/evaluation/training.py",
           "final = layer(input)[-1:]", "final = layer(input)[:1]",
           f"{EVALUATION_TRAINING}::test_one_answer_is_the_output_of_the_last_step"),
    Mutant("evaluation: the first of all answers are read", "experiments/evaluation/training.py",
           "return outputs[-A:]", "return outputs[:A]",
           f"{EVALUATION_TRAINING}::test_classes_have_the_cross_entropy_of_the_last_steps"),
    Mutant("evaluation: the cell of an LSTM is read", "experiments/evaluation/training.py",
           "h = final[0] if isinstance(final, tuple)", "h = final[1] if isinstance(final, tuple)",
           f"{EVALUATION_TRAINING}::test_one_answer_is_the_output_of_the_last_step"),
    Mutant("evaluation: the error is that of the validation part", "experiments/evaluation/training.py",
           "self._measure(TEST)", "self._measure(VALIDATION)",
           f"{EVALUATION_TRAINING}::test_every_part_of_the_data_has_its_own_use"),
    Mutant("evaluation: settings are chosen by the test part", "experiments/evaluation/training.py",
           "self._measure(VALIDATION)))", "self._measure(TEST)))",
           f"{EVALUATION_TRAINING}::test_every_part_of_the_data_has_its_own_use"),
    Mutant("evaluation: the learning rate does not fall", "experiments/evaluation/training.py",
           "factor = 0.5 * (1.0 + math.cos(math.pi * (share - WARM_UP) / (1.0 - WARM_UP)))", "factor = 1.0",
           f"{EVALUATION_TRAINING}::test_the_learning_rate_rises_over_a_tenth_of_the_updates_and_falls_to_zero"),
    Mutant("evaluation: the learning rate does not rise", "experiments/evaluation/training.py",
           "factor = (self.made + 1) / (WARM_UP * self.updates + 1)", "factor = 1.0",
           f"{EVALUATION_TRAINING}::test_the_learning_rate_rises_over_a_tenth_of_the_updates_and_falls_to_zero"),
    Mutant("evaluation: the gradient is not cut", "experiments/evaluation/training.py",
           "            nn.utils.clip_grad_norm_(self.parameters, CUT)\n", "",
           f"{EVALUATION_TRAINING}::test_the_gradient_is_cut_to_a_norm"),
    Mutant("evaluation: all seeds have one order of examples", "experiments/evaluation/training.py",
           "default_rng([seed, 3])", "default_rng([0, 3])",
           f"{EVALUATION_TRAINING}::test_the_seed_decides_the_order_of_the_examples"),
    Mutant("evaluation: a class of outputs that are no numbers counts", "experiments/evaluation/training.py",
           "if not outputs.isfinite().all():", "if False:",
           f"{EVALUATION_TRAINING}::test_a_network_whose_last_update_destroys_it_has_diverged"),
    Mutant("evaluation: a run goes on after its loss was no number", "experiments/evaluation/training.py",
           "                    finite = False\n                    break\n", "                    break\n",
           f"{EVALUATION_TRAINING}::test_data_that_are_no_numbers_make_a_divergence_at_the_first_update"),
    Mutant("evaluation: a limit of updates is ignored", "experiments/evaluation/training.py",
           "return every if self.updates is None else min(every, self.updates)", "return every",
           f"{EVALUATION_TRAINING}::test_updates_may_end_inside_an_epoch"),
    Mutant("evaluation: forget gates have the bias of torch", "experiments/evaluation/training.py",
           'layer.get_parameter("bias_hh_l0")[N : 2 * N] = 0.0', "pass",
           f"{EVALUATION_TRAINING}::test_initial_weights_are_those_that_the_head_promises"),
    Mutant("evaluation: recurrent weights of simple cells are not orthogonal", "experiments/evaluation/training.py",
           'if ALL_METHODS[method].cell == "tanh":', "if False:",
           f"{EVALUATION_TRAINING}::test_initial_weights_are_those_that_the_head_promises"),
    Mutant("evaluation: a network is built with other modules than planned", "experiments/evaluation/plan.py",
           "Schedule.from_periods(hidden, sorted(set(periods)))", "Schedule.exponential(hidden, modules)",
           "tests/experiments/evaluation/test_plan.py::test_networks_with_clocks_have_a_schedule_and_the_others_none"),
    Mutant("evaluation: a size in thousands is one in units", "experiments/evaluation/plan.py",
           '"k": 1000,', '"k": 1,', "tests/experiments/evaluation/test_plan.py::test_sizes_have_suffixes"),
    Mutant("evaluation: failed runs count as errors", "experiments/evaluation/result.py",
           "finished = [record for record in group if record.status == FINISHED]", "finished = group",
           f"{EVALUATED}::test_a_run_that_fails_is_reported_and_tried_again"),
    Mutant("evaluation: long sequences come before short ones", "experiments/evaluation/result.py",
           "(order_name(row.data), PLACES", "(row.data, PLACES",
           f"{EVALUATED}::test_the_result_has_a_row_for_each_length_method_and_size"),
    Mutant("evaluation: a layer that gives no probabilities learns characters", "experiments/evaluation/evaluation.py",
           "if task.needs_probabilities and", "if False and",
           f"{EVALUATED}::test_an_argument_that_cannot_be_used_is_named_before_anything_is_trained"),
    Mutant("evaluation: equal periods are merged silently", "experiments/evaluation/evaluation.py",
           "if len(found) < len(given):", "if False:",
           f"{EVALUATED}::test_an_argument_that_cannot_be_used_is_named_before_anything_is_trained"),
    Mutant("evaluation: a missing GPU is found by the training", "experiments/evaluation/evaluation.py",
           "    if not torch.cuda.is_available():", "    if False:", f"{EVALUATED}::test_a_missing_gpu_is_named"),
    Mutant("evaluation: runs train together", "experiments/sweep/batches.py",
           "most = largest if find_task(group[0][0].task).trains_together else 1", "most = largest",
           "tests/experiments/sweep/test_batches.py::test_runs_of_a_task_that_does_not_train_together_stand_alone"),
    Mutant("evaluation: the pixels of permuted images stay in order", "experiments/evaluation/images.py",
           "pixels = pixels[:, torch.from_numpy(self.permutation)]", "pass",
           "tests/experiments/evaluation/test_images.py::test_pixels_are_those_of_the_files"),
    Mutant("evaluation: both markers stand in the first half", "experiments/evaluation/adding.py",
           "second = half + (numbers[:, -1] * (self.steps - half))", "second = (numbers[:, -1] * half)",
           "tests/experiments/evaluation/test_adding.py"),
    Mutant("evaluation: the marker of the copy task comes late", "experiments/evaluation/copying.py",
           "symbols[REPEATED + self.delay] = MARKER", "symbols[REPEATED + self.delay + 1] = MARKER",
           "tests/experiments/evaluation/test_copying.py::test_the_letters_return_after_the_delay"),
    Mutant("evaluation: the answer is the character that was read", "experiments/evaluation/characters.py",
           "return Batch(input, classes[-answered:])", "return Batch(input, classes[-answered - 1 : -1])",
           "tests/experiments/evaluation/test_characters.py::test_targets_are_the_next_characters"),
    Mutant("multiply-adds: a readout reads modules that hold", "experiments/networks/cost.py",
           "sum(size / period for", "sum(size for",
           "tests/experiments/networks/test_cost.py::test_a_network_with_clocks_costs_the_products_of_its_ticks"),
    Mutant("multiply-adds: the gates of a cell are one", "experiments/networks/cost.py",
           "return CELLS[chosen.cell].gates * modules", "return modules",
           "tests/experiments/networks/test_cost.py::test_a_network_without_clocks_costs_every_weight_once"),
    Mutant("models: modules are read one step late", "experiments/networks/models/delays.py",
           "pasts = [[zero] * delay for", "pasts = [[zero] * (delay + 1) for",
           "tests/experiments/networks/models/test_delays.py"),
    Mutant("models: the least squares have no ridge", "experiments/networks/least_squares.py",
           "squares += ridge * (squares.mean().item() or 1.0)", "squares += 0.0",
           "tests/experiments/networks/test_least_squares.py::test_the_readout_is_that_of_numpy"),
    Mutant("orthogonal: all modules are one", "init.py",
           "slices = layer.schedule.slices if layer.cell in NONLINEARITIES else ()",
           "slices = (slice(None),) if layer.cell in NONLINEARITIES else ()",
           f"{INITIAL}::test_every_module_is_orthogonal_to_itself_and_all_else_stays"),
    Mutant("orthogonal: only the first layer is drawn", "init.py",
           'if name.startswith("weight_hh"):', 'if name == "weight_hh_l0":',
           f"{INITIAL}::test_every_module_is_orthogonal_to_itself_and_all_else_stays"),
    Mutant("orthogonal: gated cells are drawn", "init.py",
           "slices = layer.schedule.slices if layer.cell in NONLINEARITIES else ()", "slices = layer.schedule.slices",
           f"{INITIAL}::test_other_layers_stay_as_they_are"),
    Mutant("orthogonal: the signs are those of the decomposition", "init.py",
           "gain * q * r.diagonal().sign()", "gain * q",
           f"{INITIAL}::test_matrices_are_uniform_over_all_orthogonal_ones"),
    Mutant("orthogonal: the generator is ignored", "init.py",
           "torch.empty_like(parameter[rows, rows]).normal_(generator=generator)",
           "torch.empty_like(parameter[rows, rows]).normal_()", f"{INITIAL}::test_the_generator_decides_every_bit"),
]  # fmt: skip


def list_stale_parts(mutant: Mutant) -> list[str]:
    """Why a break no longer fits the code: it must name a string that occurs once in its file, and tests that exist."""
    faults = []
    file = ROOT / "src" / "cwrnn" / mutant.file
    count = file.read_text().count(mutant.old) if file.exists() else 0
    if count != 1:
        faults.append(f"{mutant.name}: {mutant.file} must contain {mutant.old!r} once, not {count} times")
    for test in mutant.tests.split():
        path, *names = test.split("::")
        if not (ROOT / path).exists() or any(
            f" {name.split('[')[0]}(" not in (ROOT / path).read_text() for name in names
        ):
            faults.append(f"{mutant.name}: there is no test {test}")
    return faults


def is_compiled(file: str) -> bool:
    """True if this is a file of the C library."""
    return file.endswith((".c", ".h"))


def has_checkouts_kernel(file: str) -> bool:
    """True if the tests of breaks of this file run with the kernel of this checkout."""
    return file.startswith(("experiments/", "kernels/")) and not is_compiled(file)


@cache
def build_unbroken() -> Path:
    """A folder with a copy of src, its C library, and in `build` the object files, which broken copies share."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (folder / "cmake").mkdir()
    # a broken kernel need not be fast, and without optimisation it compiles in a fifth of the time
    listing = (ROOT / "cmake" / "CMakeLists.txt").read_text()
    assert "-O3" in listing
    (folder / "cmake" / "CMakeLists.txt").write_text(listing.replace("-O3", "-O0"))
    options = "-DSKBUILD_STATE=editable", "-DCWRNN_ISAS=baseline", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"
    run_compiler("cmake", "-S", str(folder / "cmake"), "-B", str(folder / "build"), *options)
    run_compiler("cmake", "--build", str(folder / "build"), "--parallel", "2")
    return folder


def build_kernel(folder: Path, broken: str, unbroken: str | None) -> None:
    """Build the C library of the copy of src in `folder`: compile what reads the broken file, and link the rest.

    Objects with `unbroken` in their names are those of the package as it is.
    """
    base = build_unbroken()
    read = str(base / "src" / "cwrnn" / broken)
    objects = {}
    for step in json.loads((base / "build" / "compile_commands.json").read_text()):
        command = shlex.split(step["command"])
        made = command[command.index("-o") + 1]
        objects[made] = base / "build" / made
        reads_it = read in (base / "build" / f"{made}.d").read_text()
        if reads_it and (unbroken is None or unbroken not in made):
            objects[made] = folder / "build" / made.replace(str(base), str(folder))
            # the first of two builds has compiled some of them
            if not objects[made].exists():
                objects[made].parent.mkdir(parents=True, exist_ok=True)
                run_compiler(*(part.replace(str(base), str(folder)) for part in command), folder=folder / "build")
    link = shlex.split((base / "build" / "CMakeFiles" / "cwrnn_cpu.dir" / "link.txt").read_text())
    run_compiler(*(str(objects.get(part, part.replace(str(base), str(folder)))) for part in link))


def run_compiler(*command: str, folder: Path | None = None) -> None:
    """Run a command of the build; exit with what it printed if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    if result.returncode != 0:
        raise SystemExit(f"the broken kernel does not compile:\n{result.stdout}{result.stderr}")


class Outcome(NamedTuple):
    """The test that failed with a break, or None, and the seconds that this took."""

    failed: str | None
    seconds: float


def make_break(mutant: Mutant) -> Outcome:
    """Run the tests with this break. Exits if the broken code cannot even run."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        # without a library in the copy the cascade runs; the experiments would be too slow with it
        left_out = ["__pycache__"] if has_checkouts_kernel(mutant.file) else ["__pycache__", "*.so"]
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns(*left_out))
        file = source / "cwrnn" / mutant.file
        text = file.read_text()
        file.write_text(text.replace(mutant.old, mutant.new))
        if not is_compiled(mutant.file):
            failed = find_failed(mutant, Path(folder))
        else:
            # nearly every break is noticed in float64, and the kernel takes seconds to compile in each precision
            for unbroken in ("cpu_baseline_32", None):
                build_kernel(Path(folder), mutant.file, unbroken)
                failed = find_failed(mutant, Path(folder))
                if failed is not None:
                    break
        return Outcome(failed, time.monotonic() - start)


def find_failed(mutant: Mutant, folder: Path) -> str | None:
    """The test that fails with the copy of src in `folder`, or None."""
    output, verdict = folder / "output", folder / "verdict"
    verdict.unlink(missing_ok=True)
    output.write_text("")
    process = PROCESSES.Process(target=run_tests, args=(folder / "src", mutant.tests.split(), output, verdict))
    with STARTING:
        process.start()
    process.join()
    printed = output.read_text()
    # code that cannot run fails every test, whatever the test checks
    crashed = any(error in printed for error in ("NameError", "SyntaxError", "ImportError", "AttributeError"))
    code = verdict.read_text() if verdict.exists() else f"{process.exitcode}, the exit code of its process"
    if crashed or code not in ("0", "1"):
        raise SystemExit(f"{mutant.name}: the tests did not run; pytest returned {code}\n{printed}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", printed, re.MULTILINE)
    return failed[1] if failed else mutant.tests if code == "1" else None


def run_tests(source: Path, tests: list[str], output: Path, verdict: Path) -> None:
    """Run the tests, in a process of their own, against the package in `source`.

    Everything that the tests print goes to the file `output`. The exit code of pytest goes to the file `verdict`,
    because the exit code of a forked process is sometimes lost.
    """
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.chdir(ROOT)
    # the finder of an editable install precedes every path. This process drops it; processes that the tests start
    # import an empty module in its place
    (source / "_editable_skbc_cwrnn.py").touch()
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "_editable_skbc_cwrnn"]
    sys.path.insert(0, str(source))
    sys.dont_write_bytecode = True
    # pytest collects garbage several times, and what the server has loaded is much, and never garbage
    gc.freeze()
    os.environ |= {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "mutants"}
    import pytest

    try:
        # hypothesis, which is a plugin of pytest, is imported already
        options = ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
        # in the folder that all processes share, each also deletes old folders, and two that delete the same one fail
        options += ["--basetemp", str(output.parent / "tests")]
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options, *tests]))
        verdict.write_text(str(code))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        # at once, without waiting for threads or processes that the tests left behind
        os._exit(0)


def list_whole_tests(mutants: list[Mutant], passed: bool) -> list[Mutant]:
    """The tests of all mutants with nothing broken, the longest first.

    A failure proves something only if the same tests pass without the break, with the same kernel. If all tests have
    just `passed`, as in `make test`, those that have the kernel of this checkout are left out.
    """
    # by the start of a mutant's file, a file like it that decides which kernel its tests have
    like = {
        "kernels/gpu/": "kernels/gpu/__init__.py",
        "kernels/": "kernels/cpu/cpu.c",
        "experiments/": "experiments/__init__.py",
        "": "__init__.py",
    }
    tests_of: dict[tuple[str, str], set[str]] = {}
    for mutant in mutants:
        file = next(file for start, file in like.items() if mutant.file.startswith(start))
        for test in mutant.tests.split():
            # the kernel is built once for all tests; the others run file by file, beside it
            path = "" if file.endswith(".c") else test.split("::")[0]
            tests_of.setdefault((file, path), set()).add(test)
    if passed:
        tests_of = {key: tests for key, tests in tests_of.items() if not has_checkouts_kernel(key[0])}
    in_order = sorted(tests_of.items(), key=lambda item: (item[0][1] != "", "gpu" not in item[0][0], item[0]))
    return [Mutant("nothing", file, "", "", " ".join(sorted(tests))) for (file, _), tests in in_order]


def main(words: list[str], passed: bool) -> int:
    """Make the breaks whose name contains one of `words` (all of them if there are none).

    `passed`: the tests have just passed with nothing broken.

    Returns the number of breaks that no test noticed, which is the exit code.
    """
    mutants = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    if not mutants:
        raise SystemExit(f"no break has a name that contains one of these words: {', '.join(words)}")
    stale = [fault for mutant in mutants for fault in list_stale_parts(mutant)]
    if stale:
        raise SystemExit("\n".join(stale))
    if any(is_compiled(mutant.file) for mutant in mutants):
        # before any thread needs it
        build_unbroken()
    whole = list_whole_tests(mutants, passed)
    with ThreadPoolExecutor(max_workers=2) as pool:
        outcomes = [pool.submit(make_break, mutant) for mutant in (*whole, *mutants)]
        try:
            for outcome in outcomes[: len(whole)]:
                failed = outcome.result().failed
                if failed is not None:
                    raise SystemExit(f"this test fails although nothing is broken: {failed}")
            missed = []
            for mutant, future in zip(mutants, outcomes[len(whole) :], strict=True):
                failed, seconds = future.result()
                print(
                    f"{'NOT NOTICED' if failed is None else 'noticed':<12}{seconds:5.1f} s  {mutant.name}", flush=True
                )
                if failed is None:
                    missed.append(mutant.name)
        finally:
            pool.shutdown(cancel_futures=True)
    print(f"the tests noticed {len(mutants) - len(missed)} of {len(mutants)} breaks")
    for name in missed:
        print(f"no test noticed: {name}")
    return len(missed)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(main([word for word in arguments if word != PASSED], PASSED in arguments))

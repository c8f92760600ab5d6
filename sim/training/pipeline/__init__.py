"""Pipelines: stages of a model on ranks, through which micro-batches go forward and backward.

What is called from outside:

- `schedules`: ``tables(schedule, ranks, stages_a_rank, micro_batches)``, each rank's actions in order, for
  names in ``SCHEDULES``; ``placement`` says where its stages stand; ``zb_2p`` is the one that needs times.
- `actions`: ``Action``, its text as torch writes it, ``read_tables`` and ``write_tables`` of CSV.
- `placement`: ``Placement``, a loop or a V; ``deal_layers``.
- `lowering`: ``find_placement`` of tables from a file; ``check_tables`` refuses in words what cannot be
  carried out; ``lower`` puts in UNSHARD, RESHARD, REDUCE_GRAD, sends and receives where torch does.
- `program`: ``find_runtime`` (torch's, Megatron-LM's batched and overlapped, ``decoupled``), ``prepare``,
  which makes tables what a runtime takes, and ``pipeline``, the program of a pipeline alone.
- `messages`: ``Messages(rank_list, placement, nbytes)``, which a runtime is called with, beside the rank's
  stages by number (`ringside.sim.training.stage.Stage`) and its prepared table.
- `passes`: ``Commanded``, what a `Sharing` has besides its hooks if UNSHARD and others reach it.

On a mesh with other dimensions a rank's list is written so: make its `RankList`, and a ``Stage`` for each
of ``placement.of(position)``, call the runtime, then each sharing's ``after_step``.
"""

"""Pipelines: stages of a model on ranks, through which micro-batches go forward and backward.

Public names:

- `schedules`: ``tables(schedule, ranks, stages_a_rank, micro_batches)``, each rank's actions in order, for
  names in ``SCHEDULES``; ``placement`` gives the ranks of stages; ``zb_2p`` is the one that needs times.
- `actions`: ``Action``, its text as torch writes it, ``read_tables`` and ``write_tables`` of CSV.
- `placement`: ``Placement``, a loop or a V; ``deal_layers``.
- `lowering`: ``find_placement`` of tables from a file; ``check_tables`` refuses tables that cannot run;
  ``lower`` inserts UNSHARD, RESHARD, REDUCE_GRAD, sends and receives where torch does.
- `program`: ``find_runtime`` (torch's, Megatron-LM's batched and overlapped, ``decoupled``),
  ``find_pipeline``, which returns a `Pipeline` of prepared tables, and ``pipeline``, one alone as a program.
- `passes`: ``Commanded``, the further methods of a `Sharing` that UNSHARD and others reach.

On a mesh with other dimensions, write a rank's list so: make its `RankList`, and a ``Stage`` for each of the
pipeline's ``stages[position]``, call ``write``, then each sharing's ``after_step``.
"""

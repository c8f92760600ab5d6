#!/bin/bash
# ringside train --megatron examples/pretrain_gpt.sh --cluster dgx-h100:2
GPUS_PER_NODE=8
NODES=${NODES:-2}
MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope
    --swiglu --normalization RMSNorm --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0 --hidden-dropout 0.0
)
LAYOUT_ARGS=(
    --tensor-model-parallel-size 2 --sequence-parallel
    --pipeline-model-parallel-size 2
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size $((4 * GPUS_PER_NODE * NODES))
    --bf16 --no-rope-fusion
    --lr 1.5e-4 --train-iters 100
    --tokenizer-type NullTokenizer --vocab-size 128255 --mock-data
)
torchrun --nproc-per-node $GPUS_PER_NODE --nnodes $NODES pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${LAYOUT_ARGS[@]}" "${TRAINING_ARGS[@]}"

#!/bin/bash
# The migration guide's pretrain_single.sh with sizes for a machine without GPUs, `relkit launch` in
# place of torchrun, and gloo in place of NCCL. First: python examples/prepare_data.py (see there)
# Every size can be set from outside: GPUS_PER_NODE=4 TRAIN_ITERS=100 bash examples/pretrain_single.sh
# Further arguments go to the training script: bash examples/pretrain_single.sh --load ./ckpt

export CUDA_DEVICE_MAX_CONNECTIONS=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

GPUS_PER_NODE=${GPUS_PER_NODE:-2}
MASTER_ADDR=${MASTER_ADDR:-localhost}
MASTER_PORT=${MASTER_PORT:-6000}
NNODES=${NNODES:-1}
NODE_RANK=${NODE_RANK:-0}

CHECKPOINT_PATH=${CHECKPOINT_PATH:-./ckpt}
VOCAB_FILE=${VOCAB_FILE:-./gpt-tokenizer/gpt2-vocab.json}
MERGE_FILE=${MERGE_FILE:-./gpt-tokenizer/gpt2-merges.txt}
DATA_PATH=${DATA_PATH:-./gpt_pretrain_data/sonnets_text_document}
TRAIN_ITERS=${TRAIN_ITERS:-50}

DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --node_rank $NODE_RANK \
    --master_addr $MASTER_ADDR \
    --master_port $MASTER_PORT \
"

GPT_ARGS="
    --num-layers ${NUM_LAYERS:-2} \
    --hidden-size ${HIDDEN_SIZE:-64} \
    --num-attention-heads ${NUM_ATTENTION_HEADS:-4} \
    --seq-length ${SEQ_LENGTH:-64} \
    --max-position-embeddings ${SEQ_LENGTH:-64} \
    --micro-batch-size ${MICRO_BATCH_SIZE:-4} \
    --global-batch-size ${GLOBAL_BATCH_SIZE:-16} \
    --lr ${LR:-0.003} \
    --train-iters $TRAIN_ITERS \
    --lr-decay-iters ${LR_DECAY_ITERS:-1000} \
    --lr-decay-style cosine \
    --min-lr 1.0e-5 \
    --weight-decay 1e-2 \
    --lr-warmup-fraction .01 \
    --clip-grad 1.0 \
    --fp16 \
    --transformer-impl local \
"

DATA_ARGS="
    --data-path $DATA_PATH \
    --vocab-file $VOCAB_FILE \
    --merge-file $MERGE_FILE \
    --split ${SPLIT:-949,50,1} \
"

OUTPUT_ARGS="
    --log-interval ${LOG_INTERVAL:-5} \
    --save-interval ${SAVE_INTERVAL:-10} \
    --eval-interval ${EVAL_INTERVAL:-1000} \
    --eval-iters ${EVAL_ITERS:-2} \
"

relkit launch $DISTRIBUTED_ARGS "$(dirname "$0")/pretrain_gpt.py" \
    $GPT_ARGS \
    $DATA_ARGS \
    $OUTPUT_ARGS \
    --distributed-backend gloo \
    --save $CHECKPOINT_PATH \
    --ckpt-format torch \
    "$@"

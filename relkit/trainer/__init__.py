"""The reference trainer: a parallel GPT on gloo or NCCL, small enough to read in one sitting."""
